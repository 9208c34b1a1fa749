package vm

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/e2e/matrix"
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

// apiServer is the part that isn't in the machine.
const apiServer = "API server"

// toAPIServer are the columns of its row. While it is away no pod can come, so one comes before.
func toAPIServer() []column {
	server := bed.ControlPlane
	again := func(t *testing.T) {
		t.Helper()
		if err := server.StartAPIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	frozenBy := func(t *testing.T, s syscall.Signal) {
		t.Helper()
		if err := server.SignalAPIServer(s); err != nil {
			t.Fatal(err)
		}
	}
	return []column{
		{name: "SIGKILL", do: func(t *testing.T, _ string, meanwhile func()) {
			meanwhile()
			server.StopAPIServer()
			again(t)
		}},
		{name: "SIGSTOP", long: frozen, do: func(t *testing.T, _ string, meanwhile func()) {
			meanwhile()
			frozenBy(t, syscall.SIGSTOP)
			time.Sleep(frozen)
			frozenBy(t, syscall.SIGCONT)
		}},
		{name: "restart", do: func(t *testing.T, _ string, meanwhile func()) {
			meanwhile()
			server.QuitAPIServer()
			again(t)
		}},
		{name: "away", long: longAway, do: func(t *testing.T, _ string, meanwhile func()) {
			meanwhile()
			server.StopAPIServer()
			time.Sleep(longAway)
			again(t)
		}},
	}
}

// TestMatrix freezes and stops each unit, all of them, the container runtime and the API server, while a pod comes. What
// runs goes on: the same containers, Ready all the time where the node is, and somebody's shell and log.
// docs/matrix.md has what it said. TestNode restarts and kills each unit.
func TestMatrix(t *testing.T) {
	notQuick(t)
	w := newWorkload(t)
	w.Apply(kit.TalkPod)
	w.Running("talk")
	usual := timed(func() { works(t, w.Namespace) })
	t.Logf("a pod comes, answers and goes in %.0f s where nothing happens", usual.Seconds())
	for _, unit := range guest.DaemonUnits() {
		name := strings.TrimSuffix(strings.TrimPrefix(unit, "kubelot-"), ".service")
		row(t, w, name, unit, stopped, absent(away))
	}
	row(t, w, "all daemons", strings.Join(guest.DaemonUnits(), " "), killed, stopped, restarted, absent(longAway))
	row(t, w, "containerd", "containerd.service", killed, stopped, restarted, absent(away))
	row(t, w, apiServer, "", toAPIServer()...)
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
	turns, ends := matrix.Allows(part, c.name, matrix.Times{Frozen: c.long, Away: c.long})
	w.ready()
	since := readySince(w.list(t))
	talk := w.Talk(t)
	var s *steady
	// Without the API server nobody sees anything.
	if turns == "" && part != apiServer {
		s = watchSteady(t, w, watchNode)
	}
	before := tasks(t)
	c.do(t, units, func() { w.Apply(fresh) })
	took := timed(func() { comesAndGoes(t, w.Namespace) })
	t.Logf("%s, %s: a pod had come, answered and gone %.0f s after the return", part, c.name, took.Seconds())
	if ends == "" {
		talk.GoesOn()
	} else {
		talk.Close()
		w.Talk(t).Close() // a new one works
	}
	w.ready()
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore:\n%s", after, before)
	}
	if s != nil {
		s.check(t)
	}
	if after := readySince(w.list(t)); turns == "" && !maps.Equal(since, after) {
		t.Errorf("the pods were Ready since %v and are since %v", since, after)
	}
	if err := node.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

// readySince are the times since when each pod is Ready.
func readySince(pods []corev1.Pod) map[string]string {
	since := map[string]string{}
	for _, p := range pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				since[p.Name] = fmt.Sprintf("%s %s", c.Status, c.LastTransitionTime)
			}
		}
	}
	return since
}
