package install

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What an installation that broke off has put there is in nobody's way: it can be removed, and done again.
func TestAnInstallationThatBrokeOff(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	inTheWay := dest + "/etc/default"
	if err := errors.Join(os.Mkdir(dest+"/etc", 0o755), os.WriteFile(inTheWay, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	breakOff := func() {
		t.Helper()
		if _, err := Install(t.Context(), o); err == nil || !exists(dest+"/usr/bin/kubelot") {
			t.Fatalf("it didn't break off halfway: %v, %q", err, tree(t, dest))
		}
	}
	breakOff()
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if have := tree(t, dest); !slices.Equal(have, []string{"/etc/default"}) {
		t.Errorf("left: %q", have)
	}
	breakOff()
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
}

// Half a version takes no space.
func TestHalfAVersionGoes(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	if err := os.Mkdir(filepath.Join(o.From, "kubelot-x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Install(t.Context(), o); err == nil {
		t.Error("a directory was copied as an executable")
	}
	if have := tree(t, dest); len(have) > 0 {
		t.Errorf("left: %q", have)
	}
}

// A removal that broke off can be repeated: systemctl fails to disable a unit without a file.
func TestUnitsThatAreGone(t *testing.T) {
	o := Options{Prefix: t.TempDir()}
	units := filepath.Join(o.Prefix, "lib/systemd/system")
	if err := errors.Join(os.MkdirAll(units, 0o755), os.WriteFile(units+"/kubelet.service", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"kubelot.target": true, "kubelet.service": false, "kubelot-*.service": false, "daemon-reload": false,
	} {
		if got := o.lacks(name); got != want {
			t.Errorf("%s is missing: %v, want %v", name, got, want)
		}
	}
}
