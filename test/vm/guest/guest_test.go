package guest

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestParseUnits(t *testing.T) {
	got := parseUnits("MainPID=71\nNRestarts=2\nId=a.service\nActiveState=active\n\n" +
		"MainPID=0\nNRestarts=0\nId=b.service\nActiveState=activating\n")
	want := map[string]Unit{
		"a.service": {Name: "a.service", ActiveState: "active", MainPID: "71", NRestarts: "2"},
		"b.service": {Name: "b.service", ActiveState: "activating", MainPID: "0", NRestarts: "0"},
	}
	if !maps.Equal(got, want) {
		t.Errorf("parseUnits = %+v", got)
	}
	if !got["a.service"].Running() || got["b.service"].Running() {
		t.Errorf("a unit that runs and one that starts: %+v", got)
	}
}

func TestRuntimes(t *testing.T) {
	for runtime, version := range map[Runtime]string{Containerd: "version = 3", DebianContainerd: "version = 2"} {
		config := text(runtime.config())
		if !strings.Contains(config, version) || !strings.Contains(config, "SystemdCgroup = true") ||
			strings.Contains(config, "PAUSE") {
			t.Errorf("configuration of %s:\n%s", runtime, config)
		}
	}
}

func TestMirror(t *testing.T) {
	want := "server = \"http://10.0.2.2:5000\"\n[host.\"http://10.0.2.2:5000\"]\n  capabilities = [\"pull\", \"resolve\"]\n"
	if got := mirror("127.0.0.1:5000"); got != want {
		t.Errorf("got %s", got)
	}
}

// What is installed follows from what is in the directory, and a directory with neither is refused.
func TestFrom(t *testing.T) {
	empty, executables, packages := t.TempDir(), t.TempDir(), t.TempDir()
	program, deb := filepath.Join(executables, "kubelot"), filepath.Join(packages, "kubelot_1_amd64.deb")
	forKubeadm := filepath.Join(packages, "kubelot-kubelet_1_amd64.deb")
	for _, path := range []string{program, deb, forKubeadm} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := From(executables, empty); err != nil || !reflect.DeepEqual(got, Executables{executables, empty}) {
		t.Errorf("executables: %v, %v", got, err)
	}
	want := Packages{Files: []string{deb}, Next: []string{deb}}
	if got, err := From(packages, packages); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("packages: %v, %v", got, err)
	}
	if _, err := From(empty, ""); err == nil || !strings.Contains(err.Error(), empty) {
		t.Errorf("error %v doesn't name the directory", err)
	}
}

// The machine has the executables with their links, and each version apart.
func TestExecutablesAreTaken(t *testing.T) {
	current, next, payload := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "kubelot")
	for dir, text := range map[string]string{current: "one", next: "two"} {
		for _, name := range []string{"kubelot-all", "kubelot-compact", "other"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("kubelot-all", filepath.Join(dir, "kubelot-gc")); err != nil {
			t.Fatal(err)
		}
	}
	if err := (Executables{current, next}).Fill(payload); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"current/kubelot-gc": "one", "next/kubelot-gc": "two"} {
		if data, err := os.ReadFile(filepath.Join(payload, path)); err != nil || string(data) != want {
			t.Errorf("%s has %q, want %s: %v", path, data, want, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(payload, "current", "*"))
	if err != nil || len(found) != 2 {
		t.Errorf("the machine gets %q, %v", found, err)
	}
}
