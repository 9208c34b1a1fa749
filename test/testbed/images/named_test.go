package images

import (
	"os"
	"path/filepath"
	"testing"
)

// Images of one program share its layer, and each has the program under its own name.
func TestNamed(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("text"), 0o755); err != nil {
		t.Fatal(err)
	}
	all, err := Named(program, map[string]string{"a": "example.org/a:1", "b": "example.org/b:2"})
	if err != nil || len(all) != 2 || all[0].Ref != "example.org/a:1" || all[1].Ref != "example.org/b:2" {
		t.Fatalf("images %v, %v", all, err)
	}
	var ids [2][]string
	for i, img := range all {
		config, err := img.Image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range config.RootFS.DiffIDs {
			ids[i] = append(ids[i], id.String())
		}
		if want := []string{"a", "b"}[i]; len(config.Config.Cmd) != 1 || config.Config.Cmd[0] != want {
			t.Errorf("%s runs %q, want %s", img.Ref, config.Config.Cmd, want)
		}
	}
	if len(ids[0]) != 2 || len(ids[1]) != 2 || ids[0][0] != ids[1][0] || ids[0][1] == ids[1][1] {
		t.Errorf("layers %q and %q", ids[0], ids[1])
	}
	if _, err := Named(filepath.Join(t.TempDir(), "none"), map[string]string{"a": "a:1"}); err == nil {
		t.Error("a program that isn't there is no error")
	}
}
