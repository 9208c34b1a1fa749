package matrix

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/bed"
)

// idle stands in for a daemon that is away: kubelot up starts again what ends.
const idle = "#!/bin/sh\nexec sleep infinity\n"

// do performs the action on the part and returns when the part is back.
func (r *rig) do(t *testing.T, part string, a action) {
	t.Helper()
	switch part {
	case apiserver:
		r.toAPIServer(t, a)
	case containerd:
		r.toContainerd(t, a)
	case crew:
		r.toCrew(t, a)
	default:
		r.toDaemon(t, part, a)
	}
}

func (r *rig) toDaemon(t *testing.T, name string, a action) {
	t.Helper()
	switch a {
	case kill:
		r.bed.Signal(t, name, syscall.SIGKILL)
	case restart:
		r.bed.Signal(t, name, syscall.SIGTERM)
	case freeze:
		r.bed.Signal(t, name, syscall.SIGSTOP)
		r.pass(r.times.Frozen)
		r.bed.Signal(t, name, syscall.SIGCONT)
	case absence:
		back := r.point(t, name, r.idle)
		r.bed.Signal(t, name, syscall.SIGTERM)
		pid := r.standIn(t)
		r.pass(r.times.Away)
		back()
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	case version:
		back := r.point(t, name, filepath.Join(r.last, "kubelot-"+name))
		r.bed.Signal(t, name, syscall.SIGTERM)
		r.runs(t, name)
		r.pass(r.times.Frozen)
		back()
		r.bed.Signal(t, name, syscall.SIGTERM)
	}
	r.runs(t, name)
}

func (r *rig) toCrew(t *testing.T, a action) {
	t.Helper()
	switch a {
	case kill:
		r.must(t, r.bed.Node.Kill())
	case freeze:
		signal := func(s syscall.Signal) {
			for _, name := range daemons {
				r.bed.Signal(t, name, s)
			}
		}
		signal(syscall.SIGSTOP)
		r.pass(r.times.Frozen)
		signal(syscall.SIGCONT)
		return
	case restart:
		r.bed.Node.Stop()
	case absence:
		r.bed.Node.Stop()
		r.pass(r.times.Away)
	case version:
		var back []func()
		// kubelot up leaves out what the last release doesn't have: the link leads to nothing.
		for _, name := range daemons {
			back = append(back, r.point(t, name, filepath.Join(r.last, "kubelot-"+name)))
		}
		r.bed.Node.Stop()
		r.must(t, r.bed.Node.Launch(t.Context()))
		r.pass(r.times.Frozen)
		for _, undo := range back {
			undo()
		}
		r.bed.Node.Stop()
	}
	r.must(t, r.bed.Node.Launch(t.Context()))
}

func (r *rig) toContainerd(t *testing.T, a action) {
	t.Helper()
	c := r.bed.CRI
	switch a {
	case kill:
		c.Kill()
	case freeze:
		r.must(t, syscall.Kill(c.PID(), syscall.SIGSTOP))
		r.pass(r.times.Frozen)
		r.must(t, syscall.Kill(c.PID(), syscall.SIGCONT))
		return
	case restart:
		c.Stop()
	case absence:
		c.Stop()
		r.pass(r.times.Away)
	case version:
		t.Fatal("not in this table")
	}
	r.must(t, c.Launch(t.Context()))
}

func (r *rig) toAPIServer(t *testing.T, a action) {
	t.Helper()
	server := r.bed.ControlPlane
	switch a {
	case freeze:
		r.must(t, server.SignalAPIServer(syscall.SIGSTOP))
		r.pass(r.times.Frozen)
		r.must(t, server.SignalAPIServer(syscall.SIGCONT))
		return
	case kill:
		server.StopAPIServer()
	case restart:
		server.QuitAPIServer()
	case absence:
		server.StopAPIServer()
		r.pass(r.times.Away)
	case version:
		t.Fatal("not in this table")
	}
	r.must(t, server.StartAPIServer(t.Context()))
}

// point makes a daemon's link lead elsewhere until the function that it returns is called.
func (r *rig) point(t *testing.T, name, target string) (back func()) {
	t.Helper()
	path := filepath.Join(r.links, "kubelot-"+name)
	was, err := os.Readlink(path)
	r.must(t, err)
	move := func(to string) {
		r.must(t, errors.Join(os.Symlink(to, path+".new"), os.Rename(path+".new", path)))
	}
	move(target)
	return func() { move(was) }
}

// hadLast reports whether the last release has the daemon.
func (r *rig) hadLast(name string) bool {
	_, err := os.Stat(filepath.Join(r.last, "kubelot-"+name))
	return err == nil
}

// standIn waits for the process that stands in for a daemon.
func (r *rig) standIn(t *testing.T) (pid int) {
	t.Helper()
	kit.Eventually(t, "the stand-in", func() error {
		children, err := bed.Children(r.bed.Node.PID())
		if err != nil {
			return err
		}
		for _, child := range children {
			command, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			if err == nil && bytes.HasPrefix(command, []byte("sleep\x00infinity")) {
				pid = child
				return nil
			}
		}
		return errors.New("no child of kubelot up sleeps")
	})
	return pid
}

// runs waits until the daemon runs.
func (r *rig) runs(t *testing.T, name string) {
	t.Helper()
	kit.Eventually(t, "kubelot-"+name, func() error {
		pid, err := r.bed.Daemon(name)
		if err != nil {
			return err
		}
		executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err == nil && !strings.Contains(executable, "kubelot") {
			return fmt.Errorf("process %d still runs %s", pid, executable)
		}
		return err
	})
}

func (r *rig) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
