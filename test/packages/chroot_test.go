package packages

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/deploy"
)

// built is a directory of packages that make packages-test has built, by the name of the environment variable.
func built(t *testing.T, variable string) string {
	t.Helper()
	dir := os.Getenv(variable)
	if dir == "" || os.Geteuid() != 0 {
		t.Skip("it installs the packages that " + variable + " names, as root; make packages-test does")
	}
	return dir
}

// crew is the packages of the default layout without kubelot-kubelet, which needs systemd.
var crew = append([]string{"kubelot", "kubelot-common", "kubelot-cli"}, daemonNames()...)

// daemonNames are the packages, and executables, of the daemons.
func daemonNames() []string {
	names, err := deploy.Daemons()
	if err != nil {
		panic(err) // the units are embedded
	}
	for i, name := range names {
		names[i] = "kubelot-" + name
	}
	return names
}

// below are the packages' files.
func below(dir string, names ...string) []string {
	var list []string
	for _, name := range names {
		list = append(list, filepath.Join(dir, name+".deb"))
	}
	return list
}

func TestSameSourceSameBytes(t *testing.T) {
	one, again := built(t, "KUBELOT_PACKAGES"), built(t, "KUBELOT_PACKAGES_AGAIN")
	first, second := read(t, filepath.Join(one, "SHA256SUMS")), read(t, filepath.Join(again, "SHA256SUMS"))
	if strings.Count(first, "\n") < 2*len(crew) {
		t.Errorf("too few packages:\n%s", first)
	}
	if first != second {
		t.Errorf("built twice from two directories, they differ:\n%s\n%s", first, second)
	}
	run(t, "sh", "-c", "cd "+one+" && sha256sum --quiet -c SHA256SUMS")
}

// In a chroot there is no systemd, running or installed: images of machines are made so.
func TestWithoutSystemd(t *testing.T) {
	one, next := built(t, "KUBELOT_PACKAGES"), built(t, "KUBELOT_PACKAGES_NEXT")
	// mount is what kubelot-volume depends on.
	s := debian(t, "bookworm", "mount")
	s.bring(t, one, "packages")
	s.bring(t, next, "packages/next")
	before := s.files(t)
	s.apt(t, "install", below("/packages", crew...)...)

	for _, name := range crew[2:] {
		program := "/usr/lib/kubelot/bin/" + name
		if name == "kubelot-cli" {
			program = "/usr/bin/kubelot"
		}
		if out := s.run(t, program, "--version"); !strings.Contains(out, "v0.0.1") {
			t.Errorf("%s --version prints %q", program, out)
		}
	}
	for _, path := range []string{
		"/usr/share/man/man1/kubelot-why.1.gz", "/usr/share/bash-completion/completions/kubelot",
		"/usr/share/zsh/vendor-completions/_kubelot", "/usr/lib/systemd/system/kubelot.target.wants/kubelot-pleg.service",
		"/usr/lib/systemd/system-preset/85-kubelot.preset", "/usr/share/doc/kubelot-lease/copyright",
	} {
		if !s.has(path) {
			t.Errorf("there is no %s", path)
		}
	}
	if page := s.run(t, "gzip", "-dc", "/usr/share/man/man1/kubelot-why.1.gz"); !strings.Contains(page, "kubelot-why") {
		t.Errorf("the manual page of kubelot why is %q", page)
	}
	if s.has("/etc/systemd/system/multi-user.target.wants/kubelot.target") {
		t.Error("the crew would start although nobody has asked for it")
	}
	if out := s.run(t, "dpkg-query", "-W", "-f", "${Package}:${Conffiles}\n", "kubelot*"); strings.Count(
		out,
		"/etc/",
	) != 1 ||
		!strings.Contains(out, "/etc/default/kubelot ") {
		t.Errorf("configuration files: %s", out)
	}
	if out := s.run(t, "dpkg", "--verify"); strings.Contains(out, "kubelot") {
		t.Errorf("dpkg finds files that aren't as they were packed: %s", out)
	}

	oneIsUpgraded(t, s)
	removed(t, s, before)
}

// oneIsUpgraded checks that nothing changes but one daemon.
func oneIsUpgraded(t *testing.T, s *system) {
	t.Helper()
	config := filepath.Join(s.root, "etc/default/kubelot")
	if err := os.WriteFile(config, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := s.executables(t)
	s.apt(t, "install", "/packages/next/kubelot-lease.deb")
	after := s.executables(t)
	for name := range after {
		if changed := before[name] != after[name]; changed != (name == "kubelot-lease") {
			t.Errorf("with a new version of kubelot-lease, %s changes: %v", name, changed)
		}
	}
	if out := s.run(t, "/usr/lib/kubelot/bin/kubelot-lease", "--version"); !strings.Contains(out, "v0.0.2") {
		t.Errorf("after the upgrade: %q", out)
	}
	s.run(t, "apt-get", "check")
}

func (s *system) executables(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(s.root, "usr/lib/kubelot/bin/*"))
	if err != nil || len(paths) < len(daemonNames()) {
		t.Fatalf("executables %q, %v", paths, err)
	}
	sums := map[string]string{}
	for _, path := range paths {
		sums[filepath.Base(path)] = fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, path))))
	}
	return sums
}

// removed removes all packages, first with and then without what the administrator has changed.
func removed(t *testing.T, s *system, before []string) {
	t.Helper()
	s.apt(t, "remove", "kubelot*")
	if s.has("/usr/lib/kubelot") || s.has("/usr/bin/kubelot") {
		t.Error("after the removal there are executables")
	}
	if text := read(t, filepath.Join(s.root, "etc/default/kubelot")); text != "# mine\n" {
		t.Errorf("the administrator's file is %q", text)
	}
	s.apt(t, "purge", "kubelot*")
	var left []string
	for _, path := range s.files(t) {
		// The users stay, as Debian's policy has it, and with them what the system keeps of them.
		if !slices.Contains(before, path) && !strings.HasPrefix(path, "/etc/passwd") &&
			!strings.HasPrefix(path, "/etc/group") &&
			!strings.HasPrefix(path, "/etc/shadow") &&
			!strings.HasPrefix(path, "/etc/gshadow") {
			left = append(left, path)
		}
	}
	if len(left) > 0 {
		t.Errorf("after the purge there are: %q", left)
	}
}

// Whoever replaces the kubelet must conflict with it, in both formats.
func TestRelations(t *testing.T) {
	dir := built(t, "KUBELOT_PACKAGES")
	file := func(pattern string) string {
		list, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, pattern))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %q, %v", pattern, list, err)
		}
		return list[0]
	}
	control := run(t, "dpkg-deb", "--field", file("kubelot-kubelet_*.deb"))
	for _, line := range []string{
		"Provides: kubelet (= 1.36.3)", "Conflicts: kubelet", "Replaces: kubelet", "Version: 0.0.1-1",
	} {
		if !strings.Contains(control, line+"\n") {
			t.Errorf("kubelot-kubelet lacks %q:\n%s", line, control)
		}
	}
	rpm := file("kubelot-kubelet-0.0.1*.rpm")
	for query, want := range map[string]string{
		"--provides": "kubelet = 1.36.3", "--conflicts": "kubelet", "--obsoletes": "kubelet", "--requires": "kubelot-crew",
	} {
		if out := run(t, "rpm", "-qp", "--nosignature", query, rpm); !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("rpm %s: %q lacks %q", query, out, want)
		}
	}
}

// rpm can read its packages, and puts the same files there. Debian has rpm, but none of what the packages need.
func TestRPM(t *testing.T) {
	dir, root := built(t, "KUBELOT_PACKAGES"), t.TempDir()
	rpms, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, "*.rpm"))
	if err != nil || len(rpms) <= len(crew) {
		t.Fatalf("packages %q, %v", rpms, err)
	}
	run(t, "rpm", append([]string{"--root", root, "--nodeps", "--noscripts", "--nosignature", "-i"}, rpms...)...)
	for _, path := range []string{"usr/lib/kubelot/bin/kubelot-pleg", "usr/bin/kubelet", "etc/default/kubelot"} {
		if _, err := os.Lstat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	if out := run(t, "rpm", "--root", root, "--nodeps", "-Va"); out != "" {
		t.Errorf("rpm finds files that aren't as they were packed:\n%s", out)
	}
	for _, file := range rpms {
		script := filepath.Join(t.TempDir(), "scripts")
		text := run(t, "rpm", "-qp", "--nosignature", "--qf", "%{POSTIN}\n%{PREUN}\n", file)
		if err := os.WriteFile(script, []byte(strings.ReplaceAll(text, "(none)", ":")), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, "sh", "-n", script)
	}
}
