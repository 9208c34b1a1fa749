package install

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheLayoutChanges(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	wants := "/usr/lib/systemd/system/kubelot.target.wants/kubelot-"
	is := func(when string, compact bool) {
		t.Helper()
		have := tree(t, dest)
		if slices.Contains(have, wants+"bus.service") == compact ||
			slices.Contains(have, wants+"compact.service") != compact {
			t.Errorf("%s there are: %q", when, have)
		}
	}
	mustInstall(t, o)
	is("at first", false)
	o.Compact = new(true)
	mustInstall(t, o)
	is("after the change", true)
	mustInstall(t, options(t, "v2", dest))
	is("with a newer version", true)
	o = options(t, "v2", dest)
	o.Daemons = []string{"lease"}
	if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "one process") {
		t.Errorf("one daemon beside them all in one process: %v", err)
	}
	o.Daemons, o.Compact = nil, new(false)
	mustInstall(t, o)
	is("after the way back", false)
}

// A newer version keeps the unit by which kubeadm starts the daemons.
func TestWhatKubeadmStartsStays(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	o.Kubelet = new(true)
	mustInstall(t, o)
	before := tree(t, dest+"/usr/lib/systemd")
	o = options(t, "v2", dest)
	got, err := Install(t.Context(), o)
	if err != nil || !got.Kubelet {
		t.Fatal(got, err)
	}
	if now := tree(t, dest+"/usr/lib/systemd"); !slices.Equal(now, before) {
		t.Errorf("the units are %q, and were %q", now, before)
	}
	if version := content(t, dest+"/usr/bin/kubelet"); version != "v2" {
		t.Errorf("the kubelet is of %s", version)
	}
	o.Daemons = []string{"lease"}
	mustInstall(t, o)
	if now := tree(t, dest+"/usr/lib/systemd"); !slices.Equal(now, before) {
		t.Errorf("with one daemon the units are %q, and were %q", now, before)
	}
	o.Daemons, o.Kubelet = nil, new(false)
	mustInstall(t, o)
	if exists(dest+"/usr/bin/kubelet") || exists(dest+"/usr/lib/systemd/system/kubelet.service") {
		t.Errorf("left: %q", tree(t, dest))
	}
}

// An image that was booted before gets the daemons' users at its next boot: systemd looks whether /usr has changed.
func TestAnImageShowsThatItHasChanged(t *testing.T) {
	dest := t.TempDir()
	long := time.Unix(1, 0)
	for _, dir := range []string{"bin", "lib"} { // there, so that /usr isn't changed by them
		if err := os.MkdirAll(filepath.Join(dest, "usr", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(dest+"/usr", long, long); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, options(t, "v1", dest))
	if info, err := os.Stat(dest + "/usr"); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("/usr was changed %s, %v", info.ModTime(), err)
	}
}
