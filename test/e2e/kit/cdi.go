package kit

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cdiDir is one of those that container runtimes read (Container Device Interface).
const cdiDir = "/var/run/cdi"

// CDI has containers get an environment variable with the name of the CDI device of the kind that they have.
func CDI(t testing.TB, kind, variable string, devices ...string) {
	t.Helper()
	named := make([]map[string]any, 0, len(devices))
	for _, device := range devices {
		edits := map[string]any{"env": []string{variable + "=" + device}}
		named = append(named, map[string]any{"name": device, "containerEdits": edits})
	}
	data, err := json.Marshal(map[string]any{"cdiVersion": "0.6.0", "kind": kind, "devices": named})
	file := filepath.Join(cdiDir, "kubelot-"+strings.ReplaceAll(kind, "/", "_")+".json")
	if err := errors.Join(err, os.MkdirAll(cdiDir, 0o755), os.WriteFile(file, data, 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file) })
}
