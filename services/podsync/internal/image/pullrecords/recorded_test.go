package pullrecords

import (
	"os"
	"path/filepath"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// The records that earlier releases wrote (testdata/<version>, never changed) are read and decide as they did.
func TestRecordsOfEarlierReleases(t *testing.T) {
	written, err := filepath.Glob("testdata/v*/sha256-*")
	if err != nil || len(written) == 0 {
		t.Fatalf("no recorded files: %v", err)
	}
	for _, file := range written {
		s, err := openStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(s.pulled, filepath.Base(file)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := &Record{}
		if err := read(file, recordKind, r, &r.TypeMeta); err != nil {
			t.Fatal(err)
		}
		found, err := s.record(r.ImageRef)
		if err != nil || found == nil || len(found.CredentialMapping) == 0 {
			t.Fatalf("%s: %v, %v", file, found, err)
		}
		for repository, c := range found.CredentialMapping {
			policy := Policy{Kind: kubeletv1beta1.AlwaysVerify}
			v := decide(policy, repository, known{record: found}, func() Credentials { return Credentials{} })
			if v.use() != c.NodePodsAccessible {
				t.Errorf("%s: a pod without credentials may use the image: %v", file, v.use())
			}
		}
	}
}
