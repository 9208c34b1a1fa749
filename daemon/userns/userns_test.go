package userns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file is the kubelet's.
func TestFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pod")
	if _, err := Read(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	want := Range{First: 131072, Length: 65536}
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "userns"))
	const text = `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],` +
		`"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	if err != nil || string(data) != text {
		t.Errorf("%s, %v", data, err)
	}
	if got, err := Read(dir); err != nil || got != want {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "one range",
		`{"uidMappings":[{"hostId":1,"length":9}],"gidMappings":[{"hostId":1,"length":9}]}`: "the host's own",
		`{"uidMappings":[{"hostId":65536,"containerId":1,"length":9}],
		  "gidMappings":[{"hostId":65536,"containerId":1,"length":9}]}`: "the pod's root",
		`{"uidMappings":[{"hostId":65536}],"gidMappings":[{"hostId":65536}]}`: "empty",
	} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestIDs(t *testing.T) {
	r := Range{First: 65536, Length: 65536}
	for id, want := range map[int64]int64{0: 65536, 1000: 66536, 65535: 131071} {
		if got, err := r.Host(id); err != nil || got != want || !r.Has(uint32(got)) {
			t.Errorf("%d is %d, %v", id, got, err)
		}
	}
	for _, id := range []int64{-1, 65536} {
		if got, err := r.Host(id); err == nil {
			t.Errorf("%d is %d, which is another pod's", id, got)
		}
	}
	if r.Has(0) || r.Has(65535) || r.Has(131072) {
		t.Error("it has an ID of others")
	}
}
