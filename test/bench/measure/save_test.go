package measure

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A report replaces the one before, and one that can't be written leaves that and nothing else.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.json")
	for _, report := range []map[string]float64{{"a": 1}, {"b": 2}} {
		if err := Save(path, report); err != nil {
			t.Fatal(err)
		}
	}
	if err := Save(path, map[string]float64{"c": math.NaN()}); err == nil {
		t.Error("what isn't JSON was written")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "{\n  \"b\": 2\n}\n" {
		t.Errorf("the report is %q, %v", data, err)
	}
	blocked := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(blocked, "full"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Save(blocked, 1); err == nil {
		t.Error("a directory was replaced")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v, %v; want the report and the directory", entries, err)
	}
}
