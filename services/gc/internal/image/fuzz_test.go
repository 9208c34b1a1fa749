package image

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Records are read as they were written, and what else is in the file never makes an image older than it is.
func FuzzRecords(f *testing.F) {
	for _, text := range []string{
		`{"sha256:a":{"firstSeen":"2026-11-20T10:00:00Z","lastUsed":"2026-11-21T10:00:00.5+01:00"}}`,
		`{"sha256:a":{"firstSeen":"9999-12-31T23:59:59Z"}}`, `{"sha256:a":{}}`, `{"":null}`, "null", "[]", "", "{",
		`{"sha256:a":{"firstSeen":"0000-01-01T00:00:00-23:59"}}`,
	} {
		f.Add([]byte(text))
	}
	images := []*runtimeapi.Image{{Id: "sha256:a"}, {Id: "sha256:b"}}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, data []byte) {
		file := filepath.Join(t.TempDir(), "records")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		records, err := Load(file)
		if err != nil && records != nil {
			t.Errorf("records %v with the error %v", records, err)
		}
		next := Update(records, images, map[string]string{Key(images[1]): "a pod"}, now)
		if len(next) != len(images) {
			t.Fatalf("%d records of %d images", len(next), len(images))
		}
		for key, r := range next {
			if r.since().After(now) {
				t.Errorf("%s is of use in the future: %+v", key, r)
			}
		}
		if err := Save(file, nil, next); err != nil {
			t.Fatal(err)
		}
		again, err := Load(file)
		if err != nil || len(again) != len(next) {
			t.Fatalf("read back %v, %v; want %v", again, err, next)
		}
		for key, r := range next {
			if got := again[key]; !got.FirstSeen.Equal(r.FirstSeen) || !got.LastUsed.Equal(r.LastUsed) {
				t.Errorf("%s: read back %+v, want %+v", key, got, r)
			}
		}
	})
}
