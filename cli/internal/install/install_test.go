package install

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kubelot.dev/deploy"
)

// executables makes a directory as a build leaves it; each executable has its content.
func executables(t *testing.T, content string) string {
	t.Helper()
	dir := t.TempDir()
	daemons, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelot-all", "kubelot-api", "kubelot-compact", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range append(daemons, "") {
		// api has an executable of its own.
		if err := os.Symlink("kubelot-all", filepath.Join(dir, strings.TrimSuffix("kubelot-"+name, "-"))); err != nil &&
			name != "api" {
			t.Fatal(err)
		}
	}
	return dir
}

func options(t *testing.T, version, dest string) Options {
	return Options{From: executables(t, version), Version: version, Prefix: "/usr", Dest: dest, Out: io.Discard}
}

func mustInstall(t *testing.T, o Options) {
	t.Helper()
	if got, err := Install(t.Context(), o); err != nil || len(got.Kept) > 0 {
		t.Fatal(got, err)
	}
}

// tree lists all files and links below a directory.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func content(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The daemons' users must get to the executables, and everybody to the command line.
func TestAnUmaskHidesNothing(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	o.Kubelet = new(true)
	before := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(before) })
	mustInstall(t, o)
	if now := syscall.Umask(0o077); now != 0o077 {
		t.Errorf("umask %o afterwards", now)
	}
	err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dest || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if want := fs.FileMode(0o644); err == nil && info.Mode()&want != want || d.IsDir() && info.Mode()&0o001 == 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What an earlier installation made under a narrow umask is opened too: daemons that run keep their version. Whose
// directory a prefix is, kubelot doesn't know.
func TestAnEarlierInstallationIsOpened(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	o.Kubelet = new(true)
	mustInstall(t, o)
	narrow := func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dest || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, info.Mode()&^0o027)
	}
	if err := filepath.WalkDir(dest, narrow); err != nil {
		t.Fatal(err)
	}
	before := syscall.Umask(0o027)
	t.Cleanup(func() { syscall.Umask(before) })
	var out strings.Builder
	o = options(t, "v2", dest)
	o.Kubelet, o.Out = new(true), &out
	mustInstall(t, o)
	want := map[string]fs.FileMode{
		"/usr/lib/kubelot": 0o755, "/usr/lib/kubelot/bin": 0o755, "/usr/lib/kubelot/v1": 0o755,
		"/usr/lib/kubelot/v1/kubelot-all": 0o755, "/usr/lib/kubelot/v2": 0o755, "/usr/lib/kubelot/installed.txt": 0o644,
		"/usr/lib/systemd/system/kubelot.target.wants": 0o755, "/etc/systemd/system/kubelot-.service.d": 0o755,
		"/usr/lib/systemd/system/kubelot-bus.service": 0o644,
		// Of the system, or of the administrator.
		"/usr": 0o750, "/usr/lib/sysusers.d": 0o750, "/etc/default/kubelot": 0o640,
	}
	for path, mode := range want {
		info, err := os.Stat(dest + path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s has the mode %v, want %v", path, info.Mode(), mode)
		}
	}
	for _, dir := range []string{"/usr", "/usr/lib"} {
		if say := "chmod o+x " + dest + dir + "\n"; !strings.Contains(out.String(), say) {
			t.Errorf("it doesn't say %q, but\n%s", say, &out)
		}
	}
}

func TestInstallAndUninstallLeaveNothing(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	o.Kubelet = new(true)
	mustInstall(t, o)
	have := tree(t, dest)
	for _, path := range []string{
		"/usr/bin/kubelot", "/usr/bin/kubelet", "/usr/lib/kubelot/bin/kubelot-lease", "/usr/lib/kubelot/v1/kubelot-api",
		"/usr/lib/systemd/system/kubelot.target.wants/kubelot-bus.service", "/etc/default/kubelot",
		"/usr/lib/systemd/system/kubelet.service", "/usr/lib/kubelot/installed.txt",
	} {
		if !slices.Contains(have, path) {
			t.Errorf("%s isn't there", path)
		}
	}
	if slices.ContainsFunc(
		have,
		func(p string) bool { return strings.Contains(p, "other") || strings.Contains(p, "compact.service") },
	) {
		t.Errorf("too much is there: %q", have)
	}
	for _, link := range []string{"/usr/bin/kubelot", "/usr/bin/kubelet", "/usr/lib/kubelot/bin/kubelot-api"} {
		if got := content(t, dest+link); got != "v1" {
			t.Errorf("%s has %q", link, got)
		}
	}
	if info, err := os.Stat(dest + "/usr/lib/kubelot/v1/kubelot-api"); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if have := tree(t, dest); !slices.Equal(have, []string{"/etc/default/kubelot"}) {
		t.Errorf("left: %q", have)
	}
	mustInstall(t, o)
	o.Purge = true
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if have := tree(t, dest); len(have) > 0 {
		t.Errorf("left after a purge: %q", have)
	}
	if err := Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "apt or dnf") {
		t.Errorf("a second time: %v", err)
	}
}

func TestOneDaemonMovesAlone(t *testing.T) {
	dest := t.TempDir()
	mustInstall(t, options(t, "v1", dest))
	o := options(t, "v2", dest)
	o.Daemons = []string{"lease"}
	mustInstall(t, o)
	bin := dest + "/usr/lib/kubelot/bin/kubelot-"
	if lease, pleg := content(t, bin+"lease"), content(t, bin+"pleg"); lease != "v2" || pleg != "v1" {
		t.Errorf("lease is of %s, pleg of %s", lease, pleg)
	}
	if cli := content(t, dest+"/usr/bin/kubelot"); cli != "v1" {
		t.Errorf("the command line is of %s", cli)
	}
	if err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if have := tree(t, dest); !slices.Equal(have, []string{"/etc/default/kubelot"}) {
		t.Errorf("left: %q", have)
	}
}

// A daemon that runs keeps its version until kubelot upgrade moves it: else a restart by chance would move it, with
// nobody watching.
func TestRunningDaemonsAreLeftAlone(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.From, "kubelot-api"), sleep, 0o700); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
	bin := dest + "/usr/lib/kubelot/bin/kubelot-"
	cmd := exec.CommandContext(t.Context(), bin+"api", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	got, err := Install(t.Context(), options(t, "v2", dest))
	if err != nil || !slices.Equal(got.Kept, []string{"api"}) {
		t.Fatalf("left to kubelot upgrade: %q, %v", got.Kept, err)
	}
	if target, err := os.Readlink(bin + "api"); err != nil || target != "../v1/kubelot-api" {
		t.Errorf("the link of the daemon that runs leads to %s, %v", target, err)
	}
	if lease := content(t, bin+"lease"); lease != "v2" {
		t.Errorf("one that doesn't run is of %s", lease)
	}
	if err := Uninstall(t.Context(), options(t, "v2", dest)); err != nil {
		t.Fatal(err)
	}
	if have := tree(t, dest); !slices.Equal(have, []string{"/etc/default/kubelot"}) {
		t.Errorf("left: %q", have)
	}
}

func TestChangedFilesStay(t *testing.T) {
	dest := t.TempDir()
	o := options(t, "v1", dest)
	mustInstall(t, o)
	file := dest + "/etc/default/kubelot"
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustInstall(t, o)
	if got := content(t, file); got != "mine" {
		t.Errorf("it is %q", got)
	}
}

// An error comes before anything has changed.
func TestRefusals(t *testing.T) {
	packaged := func(t *testing.T, o *Options) {
		if err := os.MkdirAll(o.Dest+"/usr/lib/kubelot/bin", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(o.Dest+"/usr/lib/kubelot/bin/kubelot-bus", nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, o *Options)
		want    string
	}{
		"an unknown daemon": {func(_ *testing.T, o *Options) { o.Daemons = []string{"leas"} }, `no daemon "leas"`},
		"one daemon alone":  {func(_ *testing.T, o *Options) { o.Daemons = []string{"lease"} }, "install all of kubelot"},
		"a missing program": {func(t *testing.T, o *Options) { o.From = t.TempDir() }, "make build"},
		"a package's files": {packaged, "wasn't put there by kubelot install"},
		"a file of somebody": {func(t *testing.T, o *Options) {
			if err := os.MkdirAll(o.Dest+"/usr/bin", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/opt/kubelet", o.Dest+"/usr/bin/kubelet"); err != nil {
				t.Fatal(err)
			}
			o.Kubelet = new(true)
		}, "/usr/bin/kubelet is there"},
		"a unit of somebody": {func(t *testing.T, o *Options) {
			units := o.Dest + "/usr/lib/systemd/system"
			if err := os.MkdirAll(units, 0o755); err != nil {
				t.Fatal(err)
			}
			// As Kubernetes' own instructions put it there, with the program in /usr/local/bin.
			if err := os.WriteFile(units+"/kubelet.service", []byte("theirs"), 0o600); err != nil {
				t.Fatal(err)
			}
			o.Kubelet = new(true)
		}, "/usr/lib/systemd/system/kubelet.service is there"},
		"a damaged list": {func(t *testing.T, o *Options) {
			if err := os.MkdirAll(o.Dest+"/usr/lib/kubelot", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(o.Dest+"/usr/lib/kubelot/installed.txt", []byte("/usr/../etc\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "mend the list"},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, "v1", t.TempDir())
			c.prepare(t, &o)
			before := tree(t, o.Dest)
			if _, err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if after := tree(t, o.Dest); !slices.Equal(before, after) {
				t.Errorf("it has changed %q to %q", before, after)
			}
		})
	}
}

// kubelet.service is stopped with kubelot where it is kubelot's. Another one, to which the node was handed back, goes
// on.
func TestAnotherKubeletGoesOn(t *testing.T) {
	o := Options{Prefix: "/usr"}
	names := func(commands []string) bool {
		return slices.ContainsFunc(commands, func(c string) bool { return strings.Contains(c, "kubelet.service") })
	}
	if got := stops(o.Prefix, []string{"/usr/lib/systemd/system/kubelot-bus.service"}); names(got) || len(got) == 0 {
		t.Errorf("without --kubelet: %q", got)
	}
	if got := stops(o.Prefix, []string{"/usr/lib/systemd/system/kubelet.service"}); !names(got) {
		t.Errorf("with --kubelet: %q", got)
	}
}
