package bed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOpenRefusesForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Fatalf("Open: %v, want a refusal that names the file", err)
	}
	if err := Clean(dir); err != nil {
		t.Fatalf("Clean of no bed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "thesis.txt")); err != nil {
		t.Fatalf("Clean touched a foreign file: %v", err)
	}
}

func TestNamesAreStableAndOwn(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	first, err := Open(one)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	again, err := Open(one)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	other, err := Open(two)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if first.Subnet != again.Subnet || first.ID != again.ID {
		t.Errorf("reopened bed differs: %+v, %+v", first, again)
	}
	if first.Bridge == other.Bridge || first.CgroupRoot == other.CgroupRoot {
		t.Errorf("two beds share names: %+v, %+v", first, other)
	}
	if len(first.Bridge) > 15 {
		t.Errorf("bridge name %q is longer than an interface name may be", first.Bridge)
	}
	if !first.Subnet.Contains(first.Gateway) {
		t.Errorf("gateway %v is not in %v", first.Gateway, first.Subnet)
	}
}

// Beds with the same ID want the same subnet first.
func TestASubnetIsOneBedsAlone(t *testing.T) {
	opened := func(number int) *Bed {
		b := &Bed{ID: fmt.Sprintf("%08x", os.Getpid()), Bridge: fmt.Sprintf("kt%ds%d", os.Getpid(), number)}
		if err := b.chooseSubnet(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		return b
	}
	first := opened(1)
	if second := opened(2); second.Subnet.Overlaps(first.Subnet) {
		t.Errorf("two beds have %v and %v at once", first.Subnet, second.Subnet)
	}
	if err := first.createBridge(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := first.removeBridge(); err != nil {
			t.Error(err)
		}
	})
	// As if it had been killed.
	first.Close()
	if stranger := opened(3); stranger.Subnet.Overlaps(first.Subnet) {
		t.Errorf("%v is given away while a bridge still has an address in it", first.Subnet)
	}
	if again := opened(1); again.Subnet != first.Subnet {
		t.Errorf("the bed had %v and has %v after it was opened again", first.Subnet, again.Subnet)
	}
}

// A killed run leaves a program, a shim with a container, a mount and cgroups.
func TestCleanAfterKilledRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bed")
	b, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Setup(); err != nil {
		t.Fatal(err)
	}
	shim := exec.Command("/bin/sh", "-c", "sleep 600 & sleep 600")
	shim.Args[0] = "containerd-shim-runc-v2"
	shim.Args = append(shim.Args, "-address", b.CRISocket())
	if err := shim.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = shim.Wait() }()
	if err := os.Mkdir(b.Path("mnt"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "tmpfs", b.Path("mnt")).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	left, err := b.Leftovers()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"process", "mount", "cgroup", "bridge"} {
		if !slices.ContainsFunc(left, func(item string) bool { return strings.HasPrefix(item, kind) }) {
			t.Errorf("no %s in %v", kind, left)
		}
	}
	b.Close()
	if err := Clean(dir); err != nil {
		t.Fatal(err)
	}
	if left, err = b.Leftovers(); err != nil || len(left) > 0 {
		t.Errorf("left after Clean: %v (error %v)", left, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("files left after Clean: %v (error %v)", entries, err)
	}
}

func TestParseMounts(t *testing.T) {
	info := "36 35 98:0 / /mnt/a\\040b rw,noatime master:1 shared:2 - ext4 /dev/root rw\n" +
		"37 35 0:5 / /run rw - tmpfs tmpfs rw\ngarbage\n"
	got := parseMounts(info)
	want := []mount{{"/mnt/a b", "ext4", "/"}, {"/run", "tmpfs", "/"}}
	if !slices.Equal(got, want) {
		t.Errorf("parseMounts = %v, want %v", got, want)
	}
}

// The bed's cgroups are found also where CoverCgroups has mounted them.
func TestCgroupIn(t *testing.T) {
	b := &Bed{CgroupRoot: "/kubelot-1"}
	for _, c := range []struct {
		mount  mount
		want   string
		covers bool
	}{
		{mount{"/sys/fs/cgroup/pids", "cgroup", "/"}, "/sys/fs/cgroup/pids/kubelot-1", false},
		{mount{"/sys/fs/cgroup/pids", "cgroup", "/kubelot-1"}, "/sys/fs/cgroup/pids", true},
		{mount{"/sys/fs/cgroup", "cgroup2", "/kubelot-12"}, "/sys/fs/cgroup/kubelot-1", false},
		{mount{"/mnt", "ext4", "/kubelot-1"}, "/mnt/kubelot-1", false},
	} {
		if got := b.cgroupIn(c.mount); got != c.want || b.covers(c.mount) != c.covers {
			t.Errorf("%v: cgroup %s, covers %v; want %s, %v", c.mount, got, b.covers(c.mount), c.want, c.covers)
		}
	}
}

// All controllers that a hierarchy has are passed down; one that has none, or is of version 1, is left alone.
func TestPassDown(t *testing.T) {
	for controllers, want := range map[string]string{"cpuset cpu io\n": "+cpuset +cpu +io", "\n": "", "none": ""} {
		dir := t.TempDir()
		if controllers != "none" {
			if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte(controllers), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := passDown(dir); err != nil {
			t.Errorf("controllers %q: %v", controllers, err)
		}
		if got, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); string(got) != want {
			t.Errorf("controllers %q: passed down %q, want %q", controllers, got, want)
		}
	}
}

func TestRunning(t *testing.T) {
	ended := exec.Command("/bin/true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	own := os.Getpid()
	for len(Running([]int{ended.Process.Pid})) > 0 { // it stays as an entry until Wait
		time.Sleep(time.Millisecond)
	}
	if got := Running([]int{own, ended.Process.Pid}); !slices.Equal(got, []int{own}) {
		t.Errorf("of %d and one that has ended, %v run", own, got)
	}
	if err := ended.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestParseStat(t *testing.T) {
	parent, zombie, err := parseStat("12 (a ) Z (b) S 7 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0")
	if parent != 7 || zombie || err != nil {
		t.Errorf("parent %d, zombie %v, error %v; want 7, false, nil", parent, zombie, err)
	}
	if _, zombie, _ = parseStat("12 (x) Z 1 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0"); !zombie {
		t.Error("state Z is not taken for a zombie")
	}
	if _, zombie, _ = parseStat("12 (x) Z 1 12 12 0 -1 0 0 0 0 0 0 0 0 0 20 0 2 0"); zombie {
		t.Error("a process that has another thread is taken for a zombie")
	}
	if _, _, err = parseStat("12 x"); err == nil {
		t.Error("no error for a line without a name")
	}
}

func TestSplitRule(t *testing.T) {
	got := splitRule(`-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"net\" id: \"x\"" -j CNI-DN-1`)
	want := []string{
		"-A", "CNI-HOSTPORT-DNAT", "-p", "tcp", "-m", "comment", "--comment",
		`dnat name: "net" id: "x"`, "-j", "CNI-DN-1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("splitRule = %q, want %q", got, want)
	}
}
