package image

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// The records that earlier releases wrote (testdata/<version>, never changed) are read, and nothing of them gets lost.
func TestRecordsOfEarlierReleases(t *testing.T) {
	files, err := filepath.Glob("testdata/v*/images.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded files: %v", err)
	}
	for _, file := range files {
		records, err := Load(file)
		if err != nil || len(records) == 0 {
			t.Fatalf("%s: %d records, %v", file, len(records), err)
		}
		again := filepath.Join(t.TempDir(), "images.json")
		if err := Save(again, nil, records); err != nil {
			t.Fatal(err)
		}
		was, is := parsed(t, file), parsed(t, again)
		if !reflect.DeepEqual(was, is) {
			t.Errorf("%s: was %v and became %v", file, was, is)
		}
	}
}

func parsed(t *testing.T, file string) map[string]Record {
	t.Helper()
	if _, err := os.Stat(file); err != nil {
		t.Fatal(err)
	}
	records, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range records {
		if r.FirstSeen.IsZero() {
			t.Errorf("%s: %s was never seen", file, name)
		}
	}
	return records
}
