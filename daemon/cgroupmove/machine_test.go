package cgroupmove

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fake is a machine of files. The process of the test has the ID 7 there.
type fake struct {
	t          *testing.T
	proc, root string
}

const fakeSelf = 7

// newFake makes /proc and an empty directory for the hierarchies. In the lines of mountinfo, $AT is that directory.
func newFake(t *testing.T, mountinfo, cgroups string) *fake {
	t.Helper()
	dir := t.TempDir()
	f := &fake{t: t, proc: filepath.Join(dir, "proc"), root: filepath.Join(dir, "cgroup")}
	f.write("cgroup/x", "")
	f.process(fakeSelf, "/bin/kubelot", cgroups)
	f.write("proc/7/mountinfo", strings.ReplaceAll(mountinfo, "$AT", f.root))
	if err := os.Symlink("7", filepath.Join(f.proc, "self")); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fake) write(name, text string) {
	f.t.Helper()
	file := filepath.Join(filepath.Dir(f.proc), name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) read(name string) string {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(f.proc), name))
	if err != nil {
		f.t.Error(err)
	}
	return string(data)
}

// process makes a process. A thread of the kernel has no program.
func (f *fake) process(pid int, program, cgroups string) {
	f.t.Helper()
	f.write(fmt.Sprintf("proc/%d/cgroup", pid), cgroups)
	if program == "" {
		return
	}
	if err := os.Symlink(program, filepath.Join(f.proc, fmt.Sprint(pid), "exe")); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fake) open() *machine {
	f.t.Helper()
	m, err := open(f.proc, f.root)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

const (
	mountsV2 = "22 1 0:20 / /proc rw - proc proc rw\n30 22 0:27 / $AT rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
	mountsV1 = `30 22 0:27 / $AT rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:28 / $AT/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:29 / $AT/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:30 / $AT/devices rw,relatime - cgroup cgroup rw,devices
34 30 0:31 / $AT/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
35 30 0:32 / $AT/elogind rw,relatime - cgroup cgroup rw,xattr,name=elogind
36 30 0:33 / $AT/unified rw,relatime - cgroup2 cgroup2 rw
37 22 0:34 / /elsewhere/memory rw,relatime - cgroup cgroup rw,memory
`
	linesV1 = "7:memory:/\n6:name=elogind:/\n5:name=systemd:%[1]s\n" +
		"4:devices:%[2]s\n3:cpuset:/\n2:cpu,cpuacct:%[2]s\n0::/\n"
)

func linesOfV1(systemd, rest string) string { return fmt.Sprintf(linesV1, systemd, rest) }

func TestOpen(t *testing.T) {
	const nested = mountsV1 + "40 30 0:40 / $AT rw - tmpfs tmpfs rw\n" +
		"41 40 0:29 /nested $AT/cpuset rw - cgroup cgroup rw,cpuset\n"
	for name, c := range map[string]struct{ mounts, lines, want string }{
		"version 2": {mountsV2, "0::/a\n", ": []"},
		"version 2 with a hierarchy of version 1": {
			mountsV2 + "31 30 0:28 / $AT/net rw - cgroup cgroup rw,net_cls\n", "1:net_cls:/\n0::/a\n", ": []",
		},
		"version 1": {
			mountsV1, linesOfV1("/", "/"),
			"systemd: [name=systemd] devices: [devices] cpuset: [cpuset] cpu,cpuacct: [cpu cpuacct] unified: []",
		},
		"a part that covers the whole": {nested, "3:cpuset:/nested/a\n", "cpuset/nested: [cpuset]"},
		"nothing":                      {"22 1 0:20 / /proc rw - proc proc rw\n", "0::/\n", ""},
	} {
		f := newFake(t, c.mounts, c.lines)
		m, err := open(f.proc, f.root)
		if err != nil {
			if c.want != "" || !strings.Contains(err.Error(), "none is mounted below "+f.root) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var got []string
		for _, tree := range m.trees {
			dir := strings.TrimPrefix(strings.TrimPrefix(tree.dir, f.root), "/") + strings.TrimSuffix(tree.root, "/")
			got = append(got, fmt.Sprintf("%s: %v", dir, tree.controllers))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if _, err := open(filepath.Join(t.TempDir(), "no"), "/sys"); err == nil {
		t.Error("without /proc there are hierarchies")
	}
}

func TestInside(t *testing.T) {
	part := &tree{root: "/kubelet/a"}
	for cgroup, want := range map[string]string{
		"/kubelet/a": "/", "/kubelet/a/b/c": "/b/c", "/kubelet/ab": "", "/": "", "/kubelet": "",
	} {
		if got := part.inside(cgroup); got != want {
			t.Errorf("%s is %q, want %q", cgroup, got, want)
		}
	}
	if got := (&tree{root: "/"}).inside("/a"); got != "/a" {
		t.Errorf("below the root it is %q", got)
	}
}

func TestService(t *testing.T) {
	for cgroup, want := range map[string]string{
		"/":                                 "",
		"/kubelot.slice/kubelot-gc.service": "/kubelot.slice/kubelot-gc.service",
		"/system.slice/docker.service/own":  "/system.slice/docker.service",
		"/docker/6dd6":                      "",

		"/user.slice/user-0.slice/session-1.scope":                            "",
		"/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope": "",
	} {
		v2 := &machine{trees: []tree{{root: "/"}}}
		if got := v2.service([]string{cgroup}); got != want {
			t.Errorf("version 2, %s: %q, want %q", cgroup, got, want)
		}
		v1 := &machine{trees: []tree{{controllers: []string{"cpu"}}, {controllers: []string{systemdTree}}}}
		if got := v1.service([]string{"/a.service", cgroup}); got != want {
			t.Errorf("version 1, %s: %q, want %q", cgroup, got, want)
		}
	}
}

func TestLoose(t *testing.T) {
	f := newFake(t, mountsV1, linesOfV1("/", "/"))
	f.process(1, "/sbin/init", linesOfV1("/", "/"))
	f.process(2, "", linesOfV1("/", "/"))
	f.process(8, "/bin/a", linesOfV1("/", "/"))
	f.process(9, "/bin/of-a-unit", linesOfV1("/system.slice/a.service", "/"))
	f.process(10, "/bin/of-a-container", linesOfV1("/", "/kubepods/x"))
	f.write("cgroup/devices/cgroup.procs", "0\n1\n2\n7\n8\n9\n10\n11\n")
	if got, err := f.open().loose(); err != nil || !slices.Equal(got, []int{7, 8}) {
		t.Errorf("loose are %v, %v", got, err)
	}
	f.write("cgroup/devices/cgroup.procs", "8\nx\n")
	if got, err := f.open().loose(); err == nil {
		t.Errorf("of nonsense loose are %v", got)
	}

	v2 := newFake(t, mountsV2, "0::/a\n")
	v2.process(8, "/bin/a", "0::/\n")
	v2.write("cgroup/cgroup.procs", "7\n8\n")
	if got, err := v2.open().loose(); err != nil || !slices.Equal(got, []int{8}) {
		t.Errorf("version 2: loose are %v, %v", got, err)
	}

	without := newFake(t, strings.ReplaceAll(mountsV1, "devices", "freezer"), "3:cpuset:/\n4:freezer:/\n0::/\n")
	if got, err := without.open().loose(); err == nil || !strings.Contains(err.Error(), "devices is not mounted") {
		t.Errorf("without the controller devices: %v, %v", got, err)
	}
}
