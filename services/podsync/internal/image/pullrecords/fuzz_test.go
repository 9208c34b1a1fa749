package pullrecords

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// FuzzRecord has a record's file say what it likes. What is read from it can be added to, and is then written and read
// as it was. Nobody without credentials is let in by one that can't be read.
func FuzzRecord(f *testing.F) {
	for _, text := range []string{
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"ref","credentialMapping":{"repo":{"nodePodsAccessible":true}}}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1alpha1","lastUpdatedTime":null,"imageRef":"ref","credentialMapping":{"repo":{"kubernetesSecrets":[{"uid":"u","namespace":"n","name":"s","credentialHash":"h"}]}}}`,
		`{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","imageRef":"ref","credentialMapping":null,"more":1}`,
		`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"ref"}`,
		`{"kind":"ImagePulledRecord"`, ``, `null`, `[]`,
	} {
		f.Add([]byte(text))
	}
	policy := Policy{Kind: "AlwaysVerify"}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.pulled, fileOf("ref")), data, 0o600); err != nil {
			t.Fatal(err)
		}
		old, err := s.record("ref")
		if v := decide(policy, "repo", known{record: old, err: err}, func() Credentials { return Credentials{} }); v.use() &&
			(err != nil || !old.CredentialMapping["repo"].NodePodsAccessible) {
			t.Errorf("a pod without credentials may use the image by %q", data)
		}
		if err != nil {
			return
		}
		secret := Secret{UID: "u", Namespace: "n", Name: "s", CredentialHash: "h"}
		record := added(old, "ref", "repo", &Credentials{KubernetesSecrets: []Secret{secret}}, time.Unix(1e9, 0))
		if err := s.keep(record); err != nil {
			t.Fatal(err)
		}
		got, err := s.record("ref")
		if err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		was, is := asJSON(t, record), asJSON(t, got)
		if !reflect.DeepEqual(was, is) {
			t.Errorf("written %s, read %s", was, is)
		}
		v := decide(policy, "repo", known{record: got}, func() Credentials {
			return Credentials{KubernetesSecrets: []Secret{secret}}
		})
		if !v.use() {
			t.Errorf("a pod with the secret that was added may not use the image: %s", is)
		}
	})
}

func asJSON(t *testing.T, r *Record) string {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// FuzzIntent has the file of an intent say what it likes: its image is one that the file is named by.
func FuzzIntent(f *testing.F) {
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"image"}`))
	f.Add([]byte(`{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"other"}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := openStore(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.pulling, fileOf("image")), data, 0o600); err != nil {
			t.Fatal(err)
		}
		images, err := s.intents()
		if err != nil || len(images) > 1 || len(images) == 1 && images[0] != "image" {
			t.Errorf("%q, %v", images, err)
		}
		if there, err := s.intended("image"); err != nil || !there {
			t.Errorf("the intent counts: %t, %v; want it to, whatever it says", there, err)
		}
	})
}
