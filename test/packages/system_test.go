package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/testbed/proc"
)

// system is a Debian of its own. Without a first process, commands run in a chroot.
type system struct {
	dir   string // the test's own
	root  string // in dir
	first int    // the process ID of its systemd, or 0
	// network is what systemd-nspawn is told of it.
	network string
}

// cache is where the Debian systems are kept between runs, as they were made.
const cache = "../../.cache/packages"

// debian unpacks a small Debian 12 with these packages.
func debian(t *testing.T, name string, packages ...string) *system {
	t.Helper()
	s := &system{dir: home(t, t.Name()), network: "--private-network"}
	s.root = rootOf(s.dir)
	if err := os.Mkdir(s.root, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, "tar", "-C", s.root, "--numeric-owner", "-xf", archive(t, name, packages...))
	return s
}

// archive is the tar archive of a small Debian 12 with these packages. It is made once.
func archive(t *testing.T, name string, packages ...string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(cache, name+".tar"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	sources := "/etc/apt/sources.list.d/debian.sources"
	if _, err := os.Stat(sources); err != nil {
		sources = "/etc/apt/sources.list"
	}
	unfinished := file + ".new.tar"
	run(t, "env", "TMPDIR="+home(t, "archive"), "mmdebstrap", "--quiet", "--mode=root", "--variant=minbase",
		"--include="+strings.Join(packages, ","), "--aptopt=Acquire::Languages \"none\"", "bookworm", unfinished, sources)
	if err := os.Rename(unfinished, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// boot starts systemd in it. What clears the test's directory ends it.
func (s *system) boot(t *testing.T) {
	t.Helper()
	// This machine's systemd, if it has one, needn't know. A network of its own: ports of the daemons are the node's.
	nspawn, err := proc.Start(proc.Spec{
		Name: "console", Path: "systemd-nspawn", Dir: s.dir, Args: []string{
			"--boot", "--register=no", "--keep-unit", "--capability=all", s.network, "--console=pipe",
			"--machine=" + filepath.Base(s.dir), "--directory=" + s.root,
		},
	})
	if err != nil {
		t.Fatalf("%v: it is in the package systemd-container", err)
	}
	t.Cleanup(nspawn.Kill)
	children := fmt.Sprintf("/proc/%d/task/%[1]d/children", nspawn.PID())
	eventually(t, "systemd has started", func() error {
		text, err := os.ReadFile(children)
		if err != nil {
			return fmt.Errorf("systemd-nspawn has ended: %s", nspawn.LogTail(4000))
		}
		if _, err := fmt.Sscan(string(text), &s.first); err != nil {
			return fmt.Errorf("it has no process yet: %s", nspawn.LogTail(4000))
		}
		out, err := s.try("systemctl", "is-system-running")
		if state := strings.TrimSpace(out); state != "running" && state != "degraded" {
			return fmt.Errorf("it is %s: %w", state, err)
		}
		return nil
	})
}

// try runs a command in it, and returns what it prints.
func (s *system) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	into := []string{"chroot", s.root}
	if s.first != 0 {
		into = []string{
			"nsenter", fmt.Sprintf("--target=%d", s.first), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--",
		}
	}
	args = append(into, args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "HOME=/root",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *system) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.try(args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// apt runs apt-get on packages of this test, which the system has below /packages.
func (s *system) apt(t *testing.T, verb string, packages ...string) string {
	t.Helper()
	out := s.run(t, append([]string{"apt-get", "--yes", "--no-install-recommends", verb}, packages...)...)
	if strings.Contains(out, "doesn't start") {
		t.Errorf("apt-get %s %q:\n%s", verb, packages, out)
	}
	return out
}

// bring copies packages into the system.
func (s *system) bring(t *testing.T, dir, into string) {
	t.Helper()
	debs, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, "*.deb"))
	if err != nil || len(debs) == 0 {
		t.Fatalf("%s has no packages: %v", dir, err)
	}
	compact, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, "compact/*.deb"))
	if err != nil {
		t.Fatal(err)
	}
	debs = append(debs, compact...)
	target := filepath.Join(s.root, into)
	if err := os.MkdirAll(target, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, deb := range debs {
		// Without the version, so that the test can name them.
		name, _, _ := strings.Cut(filepath.Base(deb), "_")
		run(t, "cp", deb, filepath.Join(target, name+".deb"))
	}
}

// files lists what the system has on its disk, without what dpkg, apt and the running system keep for themselves.
func (s *system) files(t *testing.T) []string {
	t.Helper()
	var list []string
	own := []string{
		"/packages", "/proc", "/sys", "/dev", "/tmp", "/var/lib/dpkg", "/var/lib/apt", "/var/cache", "/var/log",
		"/var/lib/systemd",
	}
	err := filepath.WalkDir(s.root, func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, s.root)
		if slices.Contains(own, name) {
			return filepath.SkipDir
		}
		list = append(list, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func (s *system) has(path string) bool {
	_, err := os.Lstat(filepath.Join(s.root, path))
	return err == nil
}

// patience is for slow machines.
const patience = 3 * time.Minute

// eventually waits until a check has no error.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	end := time.After(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("it never came that %s: %v", what, err)
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
