package vm

import (
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// toAPIServer are the columns of its row. While it is away no pod can be created, so one is created before.
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

// TestMatrix freezes and stops each unit, all of them, the container runtime and the API server, while a pod comes.
// What runs goes on: the same containers, Ready all the time where the node is, and somebody's shell and log.
// docs/matrix.md has what it said. TestNode restarts and kills each unit.
func TestMatrix(t *testing.T) {
	notQuick(t)
	w := newWorkload(t)
	w.Apply(kit.TalkPod)
	w.Running("talk")
	usual := timed(func() { works(t, w.Namespace) })
	t.Logf("a pod comes, answers and goes in %.0f s where nothing happens", usual.Seconds())
	for _, unit := range guest.DaemonUnits() {
		row(t, w, usual, daemonOf(unit), unit, stopped, absent(away))
	}
	row(t, w, usual, "all daemons", strings.Join(guest.DaemonUnits(), " "), killed, stopped, restarted, absent(longAway))
	row(t, w, usual, "containerd", "containerd.service", killed, stopped, restarted, absent(away))
	row(t, w, usual, apiServer, "", toAPIServer()...)
}

// row runs the cells of a part.
func row(t *testing.T, w *workload, usual time.Duration, part, units string, columns ...column) {
	t.Run(part, func(t *testing.T) {
		for _, c := range columns {
			t.Run(c.name, func(t *testing.T) { cell(t, w.in(t), usual, part, units, c) })
		}
	})
}

func cell(t *testing.T, w *workload, usual time.Duration, part, units string, c column) {
	times := matrix.Times{Frozen: c.long, Away: c.long}
	turns, ends := matrix.Allows(part, c.name, times)
	w.ready()
	w.Running("talk")
	since := readySince(t, w)
	talk := w.Talk(t)
	var s *steady
	// Without the API server nobody sees anything.
	if turns == "" && part != apiServer {
		s = watchSteady(t, w, watchNode)
	}
	observer, err := matrix.Observe(t.Context(), matrix.Observed{
		Client: bed.Client, Node: guest.Name, Namespace: w.Name, Living: len(w.list(t)), Passing: []string{"fresh"},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := tasks(t)
	// The pod doesn't wait for the scheduler, which after an outage of the API server asks again only after up to a
	// minute.
	bound := strings.Replace(fresh, "spec:\n", "spec:\n  nodeName: "+guest.Name+"\n", 1)
	c.do(t, units, func() { w.Apply(bound) })
	took := timed(func() { comesAndGoes(t, w.Namespace) })
	t.Logf("%s, %s: a pod had come, answered and gone %.0f s after the return", part, c.name, took.Seconds())
	if limit := 2*usual + time.Minute; took > limit {
		t.Errorf("that took %s, and must take at most %s", took, limit)
	}
	if ends == "" {
		talk.GoesOn()
	} else {
		talk.Close()
		w.Talk(t).Close() // a new one works
	}
	w.ready()
	w.Running("talk")
	if after := tasks(t); after != before {
		t.Errorf("processes of containers:\n%s\nbefore:\n%s", after, before)
	}
	if s != nil {
		s.check(t)
	}
	if err := node.AwaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	if err := observer.Check(t.Context(), part, c.name, times); err != nil {
		t.Error(err)
	}
	if after := readySince(t, w); turns == "" && !maps.Equal(since, after) {
		t.Errorf("the node and the pods were Ready since %v and are since %v", since, after)
	}
}

// readySince are the times since when the node and each pod are Ready.
func readySince(t *testing.T, w *workload) map[string]string {
	t.Helper()
	since := map[string]string{}
	n, err := bed.Client.CoreV1().Nodes().Get(t.Context(), guest.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			since["the node"] = fmt.Sprintf("%s %s", c.Status, c.LastTransitionTime)
		}
	}
	for _, p := range w.list(t) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				since[p.Name] = fmt.Sprintf("%s %s", c.Status, c.LastTransitionTime)
			}
		}
	}
	return since
}
