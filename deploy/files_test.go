package deploy

import (
	"bytes"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every file of the directory is installed once.
func TestEveryFileIsInstalled(t *testing.T) {
	files, err := Files("/usr")
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, file := range files {
		if paths[file.Path] {
			t.Errorf("%s is there twice", file.Path)
		}
		paths[file.Path] = true
		if (file.Link == "") == (len(file.Content) == 0) {
			t.Errorf("%s is neither a file nor a link", file.Path)
		}
	}
	err = fs.WalkDir(systemd, "systemd", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := systemd.ReadFile(name)
		if !slices.ContainsFunc(files, func(f File) bool { return bytes.Equal(f.Content, text) }) {
			t.Errorf("%s isn't installed", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// built are the names of the daemons whose executables are built, in order.
func built(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"../services/*/cmd/kubelot-*", "../bus/embed/cmd/kubelot-*"} {
		dirs, err := filepath.Glob(pattern)
		if err != nil || len(dirs) == 0 {
			t.Fatalf("%s: %q, %v", pattern, dirs, err)
		}
		for _, dir := range dirs {
			names = append(names, strings.TrimPrefix(filepath.Base(dir), "kubelot-"))
		}
	}
	slices.Sort(names)
	return names
}

func TestPartsAreTheDaemonsAndThree(t *testing.T) {
	daemons, err := Daemons()
	if err != nil {
		t.Fatal(err)
	}
	if want := built(t); !slices.Equal(slices.Sorted(slices.Values(daemons)), want) {
		t.Errorf("units for %v, executables of %v", daemons, want)
	}
	files, err := Files("/usr")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(daemons, Compact) {
		var paths []string
		for _, file := range files {
			if file.Part == name {
				paths = append(paths, file.Path)
			}
		}
		want := []string{
			"/usr/lib/systemd/system/kubelot-" + name + ".service",
			"/usr/lib/systemd/system/kubelot.target.wants/kubelot-" + name + ".service",
		}
		if !slices.Equal(paths, want) {
			t.Errorf("part %s has %v, want %v", name, paths, want)
		}
	}
}

// When the system stops, systemd stops a unit before those that it comes after: pods end, and are reported, while all
// daemons, the runtime and the network are there.
func TestPodsEndBeforeTheDaemonsStop(t *testing.T) {
	daemons, err := Daemons()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"containerd.service", "crio.service", "network.target"}
	for _, name := range append(daemons, Compact) {
		want = append(want, "kubelot-"+name+".service")
	}
	var after []string
	for line := range strings.Lines(string(read("kubelot-shutdown.service"))) {
		if units, ok := strings.CutPrefix(line, "After="); ok {
			after = append(after, strings.Fields(units)...)
		}
	}
	for _, unit := range want {
		if !slices.Contains(after, unit) {
			t.Errorf("kubelot-shutdown.service doesn't come after %s", unit)
		}
	}
}

// writable is what the daemons may write to for which all else is read-only (docs/security.md).
var writable = map[string]string{
	"api":      "/run/kubelot/metrics -/var/lib/kubelet/pki -/var/lib/kubelet/checkpoints",
	"bus":      "/run/kubelot",
	"lease":    "/run/kubelot/metrics -/var/lib/kubelet/pki -/etc/kubernetes",
	"pleg":     "/run/kubelot/metrics",
	"probe":    "/run/kubelot/metrics",
	"resource": "/run/kubelot/metrics -/run/kubelot/wake /var/lib/kubelet",
	"stats":    "/run/kubelot/metrics",
	"status":   "/run/kubelot/metrics",
}

// The score of systemd doesn't tell how much a daemon may write to.
func TestDaemonsWriteToLittle(t *testing.T) {
	daemons, err := Daemons()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range daemons {
		unit := string(read("kubelot-" + name + ".service"))
		var paths []string
		for line := range strings.Lines(unit) {
			if list, ok := strings.CutPrefix(line, "ReadWritePaths="); ok {
				paths = append(paths, strings.Fields(list)...)
			}
		}
		strict := strings.Contains(unit, "\nProtectSystem=strict\n")
		if got := strings.Join(paths, " "); got != writable[name] || strict != (got != "") {
			t.Errorf("kubelot-%s may write to %q, want %q, and all else is read-only: %v", name, got, writable[name], strict)
		}
	}
}

// Where it is installed elsewhere, no unit names /usr/lib/kubelot or /usr/bin/kubelet, and only /etc is outside the
// prefix.
func TestPrefix(t *testing.T) {
	files, err := Files("/opt/kubelot")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for line := range strings.Lines(string(file.Content)) {
			if strings.Contains(line, "/usr/") && !strings.HasPrefix(line, "#") && !strings.Contains(line, "/usr/bin/systemd-") {
				t.Errorf("%s names /usr: %s", file.Path, line)
			}
		}
		if !strings.HasPrefix(file.Path, "/opt/kubelot/") && !strings.HasPrefix(file.Path, "/etc/") {
			t.Errorf("%s is outside the prefix", file.Path)
		}
		if path.Clean(file.Path) != file.Path {
			t.Errorf("%s isn't clean", file.Path)
		}
	}
}
