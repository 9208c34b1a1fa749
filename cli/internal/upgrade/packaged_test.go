package upgrade

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program puts a script in the directory that PATH is.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// Executables that packages own aren't moved; the error says which commands to use instead.
func TestPackagesMoveTheirExecutables(t *testing.T) {
	const (
		dpkg = `echo "$(/usr/bin/basename $2): $2"`
		rpm  = `[ "$1 $4" = "--query --file" ] && printf '%s:' "$(/usr/bin/basename $5)"`
		no   = "echo no path found matching pattern; exit 1"
	)
	for name, c := range map[string]struct {
		dpkg, rpm string // empty: the machine has no such program
		file      string
		daemons   []string
		want      []string
	}{
		"Debian": {dpkg, "", "bus", nil, []string{
			"kubelot-bus is of the package kubelot-bus)",
			"of v2: apt install ./kubelot-cli_*.deb ./kubelot-common_*.deb ./kubelot-bus_*.deb, then apt install " +
				"./kubelot-podsync_*.deb and each other", "To go back: apt install --allow-downgrades with the older packages",
		}},
		"some daemons": {dpkg, "", "bus", []string{"pleg", "gc", "volume"}, []string{
			"./kubelot-bus_*.deb, then apt install ./kubelot-pleg_*.deb, then apt install ./kubelot-gc_*.deb, then",
		}},
		"one daemon":  {dpkg, "", "bus", []string{"gc"}, []string{"bus_*.deb, then apt install ./kubelot-gc_*.deb. After"}},
		"one process": {dpkg, "", "compact", nil, []string{"common_*.deb ./compact/kubelot-compact_*.deb. After"}},
		// rpm may be there to look at packages of others.
		"Red Hat": {"", rpm, "bus", nil, []string{
			"is of the package kubelot-bus)", "./kubelot-bus-*.rpm, then dnf install ./kubelot-podsync-*.rpm and each other",
			"dnf downgrade with the older",
		}},
		"Red Hat with dpkg": {no, rpm, "bus", nil, []string{"dnf install"}},
		"nobody's":          {no, no, "bus", nil, nil},
		"no manager":        {"", "", "bus", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bin, path := t.TempDir(), t.TempDir()
			t.Setenv("PATH", path)
			for tool, script := range map[string]string{"dpkg-query": c.dpkg, "rpm": c.rpm} {
				if script != "" {
					program(t, path, tool, script)
				}
			}
			program(t, bin, prefix+c.file, "")
			u := &upgrade{Options: Options{BinDir: bin, To: "v2", Daemons: c.daemons}}
			err := u.packaged(t.Context())
			if (err != nil) != (c.want != nil) {
				t.Fatalf("%v, want %q", err, c.want)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v lacks %q", err, want)
				}
			}
		})
	}
}

// kubelot install makes links, which no package owns, and nobody is asked.
func TestLinksAreNoPackages(t *testing.T) {
	path := t.TempDir()
	t.Setenv("PATH", path)
	program(t, path, "dpkg-query", `echo "x: y"`)
	lib := install(t)
	if err := (&upgrade{Options: Options{BinDir: filepath.Join(lib, "bin")}}).packaged(t.Context()); err != nil {
		t.Error(err)
	}
}

// It is found before anything is said of the version, which packages have no directory of.
func TestPackagesAreFoundFirst(t *testing.T) {
	bin, path := t.TempDir(), t.TempDir()
	t.Setenv("PATH", path)
	program(t, path, "dpkg-query", `echo "kubelot-bus: $2"`)
	program(t, bin, prefix+"bus", "")
	report, err := Run(t.Context(), Options{BinDir: bin, To: "v0.2.0"})
	if err == nil || !strings.HasPrefix(err.Error(), "nothing was moved: packages own") || report.Error != err.Error() {
		t.Errorf("%v, report %+v", err, report)
	}
}
