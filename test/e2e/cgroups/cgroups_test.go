package cgroups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// hierarchies are where this machine's cgroup hierarchies are mounted.
func hierarchies(t *testing.T) []string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) > 2 && strings.HasPrefix(fields[1], "/sys/fs/cgroup") &&
			(fields[2] == "cgroup" || fields[2] == "cgroup2") {
			dirs = append(dirs, fields[1])
		}
	}
	if len(dirs) == 0 {
		t.Fatal("no cgroup hierarchy is mounted below /sys/fs/cgroup")
	}
	return dirs
}

// newCgroup makes a cgroup in all hierarchies.
func newCgroup(t *testing.T, cgroup string) {
	t.Helper()
	for _, mount := range hierarchies(t) {
		dir := filepath.Join(mount, cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "cpuset.cpu_exclusive")); err != nil {
			continue
		}
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), name))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), value, 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// put moves a process in all hierarchies.
func put(t *testing.T, pid int, cgroup string) {
	t.Helper()
	for _, mount := range hierarchies(t) {
		file := filepath.Join(mount, cgroup, "cgroup.procs")
		if err := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// in is an error unless the process is in the cgroup in all hierarchies that are mounted.
func in(t *testing.T, pid int, cgroup string) error {
	t.Helper()
	for _, mount := range hierarchies(t) {
		data, err := os.ReadFile(filepath.Join(mount, cgroup, "cgroup.procs"))
		if err != nil {
			return err
		}
		if !slices.Contains(strings.Fields(string(data)), strconv.Itoa(pid)) {
			return fmt.Errorf("process %d isn't in %s below %s", pid, cgroup, mount)
		}
	}
	return nil
}

// start runs a node whose crew is to be in that cgroup of the bed's.
func start(t *testing.T, agent string) *kit.Bed {
	t.Helper()
	bed := kit.StartWithoutNode(t)
	t.Cleanup(func() {
		if !t.Failed() || bed.Node == nil {
			return
		}
		if data, err := os.ReadFile(bed.Node.LogPath()); err == nil {
			lines := strings.Split(string(data), "\n")
			t.Logf("the crew's log:\n%s", strings.Join(lines[max(0, len(lines)-80):], "\n"))
		}
	})
	bed.Config = "kubeletCgroups: " + path.Join(bed.Bed.CgroupRoot, agent) + "\n"
	if err := bed.StartNode(context.WithoutCancel(t.Context()), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	return bed
}

var daemons = []string{
	"api", "bus", "gc", "lease", "pleg", "podsync", "probe", "resource", "stats", "status", "volume",
}

func TestCgroups(t *testing.T) {
	bed := start(t, "kube/agent")
	t.Run("kubelet", func(t *testing.T) {
		t.Parallel()
		crewsCgroup(t, bed, path.Join(bed.Bed.CgroupRoot, "kube/agent"))
	})
	t.Run("system", func(t *testing.T) {
		t.Parallel()
		systemsCgroup(t, bed)
	})
}

// crewsCgroup shows that all daemons are in the cgroup that kubeletCgroups names, from their start, and come back if
// somebody moves them. Their oom_score_adj is the kubelet's, where it can be set.
func crewsCgroup(t *testing.T, bed *kit.Bed, agent string) {
	t.Helper()
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(own, []byte(".service")) {
		t.Skip("the tests run as a service of systemd, whose processes stay where they are")
	}
	score := scoreOfTheCrew(t)
	for _, name := range daemons {
		pid, err := bed.Daemon(name)
		if err == nil {
			err = in(t, pid, agent)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if got := strings.TrimSpace(string(data)); err != nil || got != score {
			t.Errorf("oom_score_adj of %s is %s, %v; want %s", name, got, err, score)
		}
	}
	bed.Signal(t, "volume", syscall.SIGKILL)
	back := func(name string) {
		t.Helper()
		kit.Eventually(t, name+" in the crew's cgroup", func() error {
			pid, err := bed.Daemon(name)
			if err != nil {
				return err
			}
			return in(t, pid, agent)
		})
	}
	back("volume")
	pid, err := bed.Daemon("stats")
	if err != nil {
		t.Fatal(err)
	}
	newCgroup(t, path.Join(bed.Bed.CgroupRoot, "elsewhere"))
	put(t, pid, path.Join(bed.Bed.CgroupRoot, "elsewhere"))
	back("stats")
	if now, err := bed.Daemon("stats"); now != pid {
		t.Errorf("stats was %d and is %d, %v", pid, now, err)
	}
}

// scoreOfTheCrew is the kubelet's oom_score_adj, or the test's own if root may not lower it here.
func scoreOfTheCrew(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:\t")
	line, _, _ := strings.Cut(rest, "\n")
	const sysResource = 24
	if capabilities, err := strconv.ParseUint(line, 16, 64); err != nil || capabilities&(1<<sysResource) != 0 {
		return "-999"
	}
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(own))
}

// part makes a cgroup the root of all hierarchies in its mount namespace, and becomes a program there. It ends if the
// root has other processes than it is told of: the program would move them.
const part = `set -e
root=$1 processes=$2
shift 2
for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do
  if [ -d "$dir$root" ]; then mount --bind "$dir$root" "$dir"; fi
done
for dir in /sys/fs/cgroup /sys/fs/cgroup/*; do
  if [ ! -e "$dir/cgroup.procs" ]; then continue; fi
  found=$(sort -n "$dir/cgroup.procs" | tr '\n' ' ')
  if [ "$found" != "$processes" ]; then echo "in $dir are $found, want $processes" >&2; exit 9; fi
  if [ "$dir" = /sys/fs/cgroup ]; then break; fi
done
exec "$@"
`

// systemsCgroup shows that podsync moves what is in no cgroup of the machine into that of systemCgroups, and nothing
// else.
func systemsCgroup(t *testing.T, bed *kit.Bed) {
	t.Helper()
	root := path.Join(bed.Bed.CgroupRoot, "machine")
	newCgroup(t, root)
	newCgroup(t, path.Join(root, "other"))
	var loose []int
	for range 3 {
		pid := sleeper(t)
		put(t, pid, root)
		loose = append(loose, pid)
	}
	slices.Sort(loose)
	other := sleeper(t)
	put(t, other, path.Join(root, "other"))

	startPodsync(t, bed, root, loose, "/misc/system")
	for _, pid := range loose {
		kit.Eventually(t, "the process in the cgroup of systemCgroups", func() error {
			return in(t, pid, path.Join(root, "misc/system"))
		})
	}
	if err := in(t, other, path.Join(root, "other")); err != nil {
		t.Error(err)
	}
	// A later one waits for the next look, a minute after the first.
	late := sleeper(t)
	put(t, late, root)
	kit.Eventually(t, "the late process in the cgroup of systemCgroups", func() error {
		return in(t, late, path.Join(root, "misc/system"))
	})
}

func sleeper(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the context's end may have done so
		_ = cmd.Wait()         // it was killed
	})
	return cmd.Process.Pid
}

// startPodsync runs podsync alone, without a bus and a runtime, on the part of the machine that is the root.
func startPodsync(t *testing.T, bed *kit.Bed, root string, loose []int, systemCgroups string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupRoot: /\n" +
		"containerRuntimeEndpoint: unix://" + dir + "/no.sock\npodLogsDir: " + dir + "/logs\n" +
		"failSwapOn: false\nfailCgroupV1: false\nmakeIPTablesUtilChains: false\nsystemCgroups: " + systemCgroups + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var processes strings.Builder
	for _, pid := range loose {
		fmt.Fprintf(&processes, "%d ", pid)
	}
	args := []string{
		"--mount", "--propagation", "private", "sh", "-c", part, "part", root, processes.String(),
		bed.Program("kubelot-podsync"), "--config=" + config, "--root-dir=" + dir + "/root", "--run-dir=" + dir + "/run",
		"--cert-dir=" + dir + "/pki", "--hostname-override=" + kit.NodeName,
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := cmd.Wait()
		var exit *exec.ExitError
		if errors.As(err, &exit) || t.Failed() {
			t.Errorf("podsync has ended with %v:\n%s", err, &out)
		}
	})
}
