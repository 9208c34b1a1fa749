package vm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/vm/guest"
)

const (
	// frozen and away are how long a unit gets no processor, and is stopped.
	frozen, away = time.Minute, time.Minute
	// longAway is how long all of them are stopped.
	longAway = 5 * time.Minute
)

// column is what happens to units in one column of the matrix.
type column struct {
	name string
	// do performs it. Meanwhile is called once, in the middle.
	do func(t *testing.T, units string, meanwhile func())
	// long is how long the units do nothing.
	long time.Duration
}

func signal(t *testing.T, units, signal string) {
	t.Helper()
	in(t, "systemctl kill --kill-whom=main --signal="+signal+" "+units)
}

// pass lets time pass, with something at a quarter of it.
func pass(d time.Duration, meanwhile func()) {
	time.Sleep(d / 4)
	meanwhile()
	time.Sleep(d - d/4)
}

var (
	killed = column{name: "SIGKILL", do: func(t *testing.T, units string, meanwhile func()) {
		signal(t, units, "KILL")
		meanwhile()
	}}
	restarted = column{name: "restart", do: func(t *testing.T, units string, meanwhile func()) {
		meanwhile()
		in(t, "systemctl restart "+units)
	}}
	stopped = column{name: "SIGSTOP", long: frozen, do: func(t *testing.T, units string, meanwhile func()) {
		signal(t, units, "STOP")
		pass(frozen, meanwhile)
		signal(t, units, "CONT")
	}}
)

// absent is a column in which the units are stopped for some time.
func absent(d time.Duration) column {
	return column{name: "away", long: d, do: func(t *testing.T, units string, meanwhile func()) {
		in(t, "systemctl stop "+units)
		pass(d, meanwhile)
		in(t, "systemctl start "+units)
	}}
}

// mayTurn are the parts without which the node isn't Ready after half a minute (docs/adr/0011, and the kubelet's limit
// for the runtime).
var mayTurn = []string{"podsync", "pleg", "volume", "probe", "status", "all daemons", "containerd"}

// TestMatrix freezes and stops each unit, all of them, and the container runtime, while a pod comes. What runs goes on:
// the same containers, Ready all the time where the node is. docs/matrix.md has what it said. TestNode restarts and
// kills each unit.
func TestMatrix(t *testing.T) {
	notQuick(t)
	w := newWorkload(t)
	usual := timed(func() { works(t, w.Namespace) })
	t.Logf("a pod comes, answers and goes in %.0f s where nothing happens", usual.Seconds())
	for _, unit := range guest.DaemonUnits() {
		name := strings.TrimSuffix(strings.TrimPrefix(unit, "kubelot-"), ".service")
		row(t, w, name, unit, stopped, absent(away))
	}
	row(t, w, "all daemons", strings.Join(guest.DaemonUnits(), " "), killed, stopped, restarted, absent(longAway))
	row(t, w, "containerd", "containerd.service", killed, stopped, restarted, absent(away))
}

// row runs the cells of a part.
func row(t *testing.T, w *workload, part, units string, columns ...column) {
	t.Run(part, func(t *testing.T) {
		for _, c := range columns {
			t.Run(c.name, func(t *testing.T) { cell(t, w.in(t), part, units, c) })
		}
	})
}

func cell(t *testing.T, w *workload, part, units string, c column) {
	// A frozen daemon is one that may only be slow, and has longer.
	turns := slices.Contains(mayTurn, part) && c.long >= away && (c.name != stopped.name || part == "containerd")
	var s *steady
	if turns {
		w.ready()
	} else {
		s = watchSteady(t, w, watchNode)
	}
	before := tasks(t)
	c.do(t, units, func() { w.Apply(fresh) })
	took := timed(func() { comesAndGoes(t, w.Namespace) })
	t.Logf("%s, %s: a pod had come, answered and gone %.0f s after the return", part, c.name, took.Seconds())
	w.ready()
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore:\n%s", after, before)
	}
	if s != nil {
		s.check(t)
	}
	if err := node.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}
