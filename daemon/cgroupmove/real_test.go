package cgroupmove

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
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
)

// nested is this machine's hierarchies (as root) below a cgroup of the test's own, so that no process is in the root
// but those that the test puts there.
func nested(t *testing.T) *machine {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root moves processes")
	}
	m, err := open("/proc", mountPoint)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("/kubelot-test-cgroupmove-%d", os.Getpid())
	for i := range m.trees {
		tree := &m.trees[i]
		if err := tree.create(name); err != nil {
			t.Fatal(err)
		}
		tree.dir, tree.root = filepath.Join(tree.dir, name), path.Join(tree.root, name)
		t.Cleanup(func() { remove(t, tree.dir) })
	}
	return m
}

// remove removes the cgroup with those below it, once the processes in it that were killed are gone.
func remove(t *testing.T, dir string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		var dirs []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		var errs []error
		for _, d := range slices.Backward(dirs) {
			errs = append(errs, os.Remove(d))
		}
		if err := errors.Join(errs...); err == nil || time.Since(begin) > time.Minute {
			if err != nil {
				t.Errorf("the test has left %s: %v", dir, err)
			}
			return
		}
	}
}

// process starts a process that waits, and puts it into the cgroup that choose names for each tree.
func process(t *testing.T, m *machine, choose func(*tree) string) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the context's end may have done so
		_ = cmd.Wait()         // it was killed
	})
	place(t, m, cmd.Process.Pid, choose)
	return cmd.Process.Pid
}

func place(t *testing.T, m *machine, pid int, choose func(*tree) string) {
	t.Helper()
	for i := range m.trees {
		if err := m.trees[i].put(t.Context(), pid, choose(&m.trees[i])); err != nil {
			t.Fatal(err)
		}
	}
}

func inRoot(*tree) string { return "/" }

// forker starts a shell in the root, which starts a process there. It returns both.
func forker(t *testing.T, m *machine) (shell, child int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "read x; sleep 1000 & echo $!; wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if child > 0 {
			_ = syscall.Kill(child, syscall.SIGKILL) // it is in the cgroup until then
		}
		_ = cmd.Process.Kill() // the context's end may have done so
		_ = cmd.Wait()         // it was killed
	})
	place(t, m, cmd.Process.Pid, inRoot)
	if _, err := in.Write([]byte("go\n")); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if child, err = strconv.Atoi(strings.TrimSpace(line)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid, child
}

func (m *machine) expect(t *testing.T, what string, pid int, choose func(*tree) string) {
	t.Helper()
	p, err := m.proc.Proc(pid)
	if err != nil {
		t.Fatal(err)
	}
	places, err := m.places(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.trees {
		if want := choose(&m.trees[i]); places[i] != want {
			t.Errorf("%s is in %q of the tree %v, want %q", what, places[i], m.trees[i].controllers, want)
		}
	}
}

func TestMovesOnThisMachine(t *testing.T) {
	m := nested(t)
	one := process(t, m, inRoot)
	shell, child := forker(t, m)
	inOther := func(*tree) string { return "/other" }
	other := process(t, m, inOther)
	inUnit := func(tree *tree) string {
		if tree.has(systemdTree) {
			return "/a.service"
		}
		return "/"
	}
	unit := process(t, m, inUnit)

	// What follows must not concern a process of anybody else.
	ours := []int{one, shell, child}
	loose, err := m.loose()
	slices.Sort(ours)
	if slices.Sort(loose); err != nil || !slices.Equal(loose, ours) {
		t.Fatalf("without a cgroup are %v, %v; want %v", loose, err, ours)
	}
	if moved, err := m.sweep(t.Context(), "/misc/system"); moved != len(ours) || err != nil {
		t.Errorf("%d processes moved, %v; want %d", moved, err, len(ours))
	}
	inSystem := func(*tree) string { return "/misc/system" }
	m.expect(t, "a process", one, inSystem)
	m.expect(t, "a shell", shell, inSystem)
	m.expect(t, "its child", child, inSystem)
	m.expect(t, "a process in a cgroup", other, inOther)
	m.expect(t, "a process of a unit", unit, inUnit)
	if moved, err := m.sweep(t.Context(), "/misc/system"); moved != 0 || err != nil {
		t.Errorf("then %d processes move, %v", moved, err)
	}
}

// A daemon goes from wherever it is to its cgroup, and back there if somebody has taken it away in one tree only.
func TestKubeletCgroups(t *testing.T) {
	m := nested(t)
	pid := process(t, m, inRoot)
	inAgent := func(*tree) string { return "/kube/agent" }
	for _, from := range []func(*tree) string{
		inRoot,
		func(*tree) string { return "/elsewhere" },
		func(tree *tree) string {
			if tree.has("devices") {
				return "/elsewhere"
			}
			return "/kube/agent"
		},
	} {
		place(t, m, pid, from)
		if moved, err := m.own(t.Context(), pid, "/kube/agent"); !moved || err != nil {
			t.Errorf("moved %v, %v", moved, err)
		}
		m.expect(t, "the process", pid, inAgent)
		if moved, err := m.own(t.Context(), pid, "/kube/agent"); moved || err != nil {
			t.Errorf("once more: moved %v, %v", moved, err)
		}
	}
}

// A process that ends before it is moved is no error.
func TestPutOfAnEndedProcess(t *testing.T) {
	m := nested(t)
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := m.trees[0].put(t.Context(), cmd.Process.Pid, "/a"); err != nil {
		t.Error(err)
	}
}
