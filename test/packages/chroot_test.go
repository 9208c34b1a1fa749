package packages

import (
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kubelot.dev/deploy"
	"kubelot.dev/test/testbed/release"
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

// The packages for the other architecture name it, and their programs are built for it. The release also has a bill of
// materials and an archive.
func TestReleaseForAnotherArchitecture(t *testing.T) {
	dir := built(t, "KUBELOT_RELEASE")
	deb, rpm, machine := "arm64", "aarch64", elf.EM_AARCH64
	if runtime.GOARCH == deb {
		deb, rpm, machine = "amd64", "x86_64", elf.EM_X86_64
	}
	run(t, "sh", "-c", "cd "+dir+" && sha256sum --quiet -c SHA256SUMS && "+
		"ls kubelot-v0.0.1-linux-"+deb+".tar.gz kubelot-v0.0.1-linux-"+deb+".cdx.json")
	for _, name := range crew[2:] {
		of := func(pattern string) string {
			list, err := filepath.Glob(filepath.Join(dir, deb, name+pattern))
			if err != nil || len(list) != 1 {
				t.Fatalf("%s%s: %q, %v", name, pattern, list, err)
			}
			return list[0]
		}
		got := run(t, "dpkg-deb", "--field", of("_*.deb"), "Architecture")
		if got += run(t, "rpm", "-qp", "--nosignature", "--qf", "%{ARCH}", of("-0.0.1*.rpm")); got != deb+"\n"+rpm {
			t.Errorf("the packages of %s are for %q", name, got)
		}
		program := strings.Replace(name, "kubelot-cli", "kubelot", 1)
		text := run(t, "sh", "-c", "dpkg-deb --fsys-tarfile "+of("_*.deb")+" | tar -xO ./usr/lib/kubelot/bin/"+program)
		if file, err := elf.NewFile(strings.NewReader(text)); err != nil || file.Machine != machine {
			t.Errorf("%s is no program for %s: %v", program, deb, err)
		}
	}
}

// In a chroot there is no systemd, running or installed: images of machines are made so.
func TestWithoutSystemd(t *testing.T) {
	one, next := built(t, "KUBELOT_PACKAGES"), built(t, "KUBELOT_PACKAGES_NEXT")
	// mount is what kubelot-volume depends on.
	s := debian(t, "bookworm", "mount")
	s.bring(t, one, "packages")
	s.bring(t, next, "packages/next")
	s.bring(t, built(t, "KUBELOT_PACKAGES_FAR"), "packages/far")
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
	refused(t, s)
	oneGoesBack(t, s)
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

// refused checks that apt keeps out what doesn't go with the packages that are there, and removes none of these for it:
// a daemon that isn't of the next release, and the package of the crew without the daemons of its version.
func refused(t *testing.T, s *system) {
	t.Helper()
	before := s.versions(t)
	for path, missing := range map[string]string{
		"/packages/far/kubelot-lease.deb": "Depends: kubelot-common (>= ",
		"/packages/next/kubelot.deb":      "Depends: kubelot-common (>= 0.0.2)",
	} {
		out, err := s.try("apt-get", "--yes", "--no-install-recommends", "install", path)
		if err == nil || !strings.Contains(out, missing) {
			t.Errorf("apt-get install %s: %v, want that it misses %q:\n%s", path, err, missing, out)
		}
		if after := s.versions(t); after != before {
			t.Fatalf("with %s refused there are\n%sthere were\n%s", path, after, before)
		}
	}
}

// oneGoesBack has one daemon go back to the version before, and nothing else with it.
func oneGoesBack(t *testing.T, s *system) {
	t.Helper()
	before := s.versions(t)
	s.apt(t, "install", "--allow-downgrades", "/packages/kubelot-lease.deb")
	if want := strings.ReplaceAll(before, "kubelot-lease 0.0.2-1", "kubelot-lease 0.0.1-1"); s.versions(t) != want ||
		want == before {
		t.Errorf("when kubelot-lease goes back there are\n%sthere were\n%s", s.versions(t), before)
	}
	s.run(t, "apt-get", "check")
}

// versions are those of the packages that are installed.
func (s *system) versions(t *testing.T) string {
	t.Helper()
	return s.run(t, "dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\n", "kubelot*")
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
	control := run(t, "dpkg-deb", "--field", packageIn(t, dir, "kubelot-kubelet_*.deb"))
	for _, line := range []string{
		"Provides: kubelet (= 1.36.3)", "Conflicts: kubelet", "Replaces: kubelet", "Version: 0.0.1-1",
	} {
		if !strings.Contains(control, line+"\n") {
			t.Errorf("kubelot-kubelet lacks %q:\n%s", line, control)
		}
	}
	rpm := packageIn(t, dir, "kubelot-kubelet-0.0.1*.rpm")
	for query, want := range map[string]string{
		"--provides": "kubelet = 1.36.3", "--conflicts": "kubelet", "--obsoletes": "kubelet", "--requires": "kubelot-crew",
	} {
		if out := run(t, "rpm", "-qp", "--nosignature", query, rpm); !slices.Contains(strings.Split(out, "\n"), want) {
			t.Errorf("rpm %s: %q lacks %q", query, out, want)
		}
	}
}

// packageIn is the one package of a directory that has such a name.
func packageIn(t *testing.T, dir, pattern string) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, runtime.GOARCH, pattern))
	if err != nil || len(list) != 1 {
		t.Fatalf("%s: %q, %v", pattern, list, err)
	}
	return list[0]
}

// A daemon's package asks for the previous release of what it works with, the package of the crew for its own version.
func TestVersionsOfRelations(t *testing.T) {
	far, next := built(t, "KUBELOT_PACKAGES_FAR"), built(t, "KUBELOT_PACKAGES_NEXT")
	releases, err := release.List("../..")
	if err != nil {
		t.Fatal(err)
	}
	depends := strings.TrimSpace(run(t, "dpkg-deb", "--field", packageIn(t, far, "kubelot-lease_*.deb"), "Depends"))
	var previous string
	for _, r := range releases {
		// The bus of that release, or what came after it.
		for _, oldest := range []string{strings.TrimPrefix(r.Version, "v"), strings.TrimPrefix(r.Version, "v") + "+1"} {
			if depends == "kubelot-common (>= "+oldest+"), kubelot-bus (>= "+oldest+")" {
				previous = oldest
			}
		}
	}
	if previous == "" {
		t.Fatalf("kubelot-lease of v99.0.0 depends on %q, of which nothing is a release", depends)
	}
	for _, c := range []struct{ dir, pattern, want string }{
		{far, "kubelot-lease-*.rpm", "kubelot-common >= " + previous},
		{far, "kubelot-lease-*.rpm", "kubelot-bus >= " + previous},
		{next, "kubelot-0.0.2*.rpm", "kubelot-bus >= 0.0.2"},
		{next, "kubelot-0.0.2*.rpm", "kubelot-cli >= 0.0.2"},
	} {
		out := run(t, "rpm", "-qp", "--nosignature", "--requires", packageIn(t, c.dir, c.pattern))
		if !slices.Contains(strings.Split(out, "\n"), c.want) {
			t.Errorf("%s requires %q, and not %q", c.pattern, out, c.want)
		}
	}
	depends = run(t, "dpkg-deb", "--field", packageIn(t, next, "kubelot_*.deb"), "Depends")
	for _, name := range crew[1:] {
		if !strings.Contains(depends, name+" (>= 0.0.2)") {
			t.Errorf("the package of the crew brings %q, and not %s", depends, name)
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
	// What it misses is that of Debian, which has no packages for rpm.
	misses := func(variable string) string {
		file := packageIn(t, built(t, variable), "kubelot-lease-*.rpm")
		cmd := exec.CommandContext(t.Context(), "rpm", "--root", root, "--nosignature", "--test", "-U", file)
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	if out := misses("KUBELOT_PACKAGES_NEXT"); strings.Contains(out, "kubelot-common") {
		t.Errorf("rpm doesn't take a daemon of the next version alone:\n%s", out)
	}
	if out := misses("KUBELOT_PACKAGES_FAR"); !strings.Contains(out, "kubelot-common >= ") {
		t.Errorf("rpm takes a daemon that doesn't go with the others:\n%s", out)
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
