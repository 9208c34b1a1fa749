package probe

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

const (
	cores = 2
	// step is how precisely a node is simulated.
	step = 5 * time.Millisecond
)

// node is a machine that runs the commands of pods' probes.
type node struct {
	tracker *tracker
	now     time.Time
	byID    map[string]time.Duration
	// computes is true where commands take their time of the cores, which they share.
	computes bool
	running  []*probe
	left     map[*probe]time.Duration
	// late is how late the latest run began, longest how long the longest took, and most how many ran at once.
	late, longest time.Duration
	most          int
}

func newNode() *node {
	n := &node{tracker: newTracker(cores), now: epoch, byID: map[string]time.Duration{}, left: map[*probe]time.Duration{}}
	n.tracker.sync(n.now)
	return n
}

// add adds pods whose container runs, with a liveness probe of that period whose command takes so long.
func (n *node) add(name string, pods int, period int32, takes time.Duration) {
	for i := range pods {
		uid := fmt.Sprintf("%s%d", name, i)
		n.starts(uid, period)
		n.tracker.setSeen(n.now, uid, topic.PodObservation{Ref: topic.Ref{UID: uid}, Containers: []topic.Container{
			{Name: "app", ID: uid, State: topic.ContainerRunning, StartedAt: n.now},
		}})
		n.byID[uid] = takes
	}
}

// starts adds a pod whose container isn't there yet.
func (n *node) starts(uid string, period int32) {
	spec := &corev1.Probe{
		PeriodSeconds: period,
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
	}
	n.tracker.setPod(n.now, uid, topic.Pod{
		Pod:       &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", LivenessProbe: spec}}}},
		Lifecycle: topic.Syncing,
	})
}

// run lets time pass and measures.
func (n *node) run(d time.Duration) {
	n.late, n.longest, n.most = 0, 0, 0
	for end := n.now.Add(d); n.now.Before(end); n.now = n.now.Add(step) {
		n.work()
		begun, _ := n.tracker.next(n.now)
		for _, p := range begun {
			n.running, n.left[p] = append(n.running, p), n.byID[p.id]
			n.late = max(n.late, n.now.Sub(p.due))
		}
		n.most = max(n.most, len(n.running))
	}
	for c := range n.tracker.exec.due {
		if p, ok := n.tracker.exec.due[c].First(); ok {
			n.late = max(n.late, n.now.Sub(p.due))
		}
	}
}

// work gives the running commands a step, or their share of it.
func (n *node) work() {
	share := step
	if n.computes && len(n.running) > cores {
		share = step * cores / time.Duration(len(n.running))
	}
	n.running = slices.DeleteFunc(n.running, func(p *probe) bool {
		if n.left[p] -= share; n.left[p] > 0 {
			return false
		}
		n.longest = max(n.longest, n.now.Sub(p.began))
		n.tracker.done(n.now, p, check.Result{Success: true}, nil)
		return true
	})
}

// Nobody is late who needn't be: most of what commands take is the runtime's, and what sleeps takes nothing.
func TestNobodyIsLate(t *testing.T) {
	for name, fill := range map[string]func(n *node){
		"100 commands a second of 60 ms":           func(n *node) { n.add("a", 100, 1, 60*time.Millisecond) },
		"100 commands each ten seconds that sleep": func(n *node) { n.add("a", 100, 10, 500*time.Millisecond) },
		"long sleepers among 100 commands a second": func(n *node) {
			n.add("a", 100, 1, 60*time.Millisecond)
			n.add("b", 10, 10, 5*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode()
			fill(n)
			n.run(time.Minute)
			if n.late > 50*time.Millisecond {
				t.Errorf("a run began %s late", n.late)
			}
		})
	}
}

// Commands that compute more than the machine has are late, but they end: each within a second.
func TestCommandsThatCompute(t *testing.T) {
	n := newNode()
	n.computes = true
	n.add("a", 100, 1, 60*time.Millisecond)
	n.run(time.Minute)
	if n.most > easeFactor*cores || n.longest >= time.Second || n.late == 0 {
		t.Errorf("%d commands at once, the longest took %s, and a run was %s late; want less than a second and some late",
			n.most, n.longest, n.late)
	}
}

// While pods start one command at a time runs that nobody waits for, and a pod that has started waits no longer.
func TestCommandsGiveWayToStarts(t *testing.T) {
	n := newNode()
	n.add("a", 100, 10, 60*time.Millisecond)
	n.run(20 * time.Second)
	n.starts("b0", 10)
	n.run(200 * time.Millisecond) // in which those end that run
	n.run(5 * time.Second)
	if n.most != 1 {
		t.Errorf("%d commands ran at once while a pod started, want 1", n.most)
	}
	n.add("b", 1, 10, 60*time.Millisecond)
	n.run(3 * time.Second)
	n.run(20 * time.Second)
	if n.late > 50*time.Millisecond {
		t.Errorf("once the pod had started, a run began %s late", n.late)
	}
}

// To choose among many that wait costs little: the number of comparisons doesn't multiply with that of the runs.
func TestChoosingIsNotQuadratic(t *testing.T) {
	compared := func(pods int) (n int) {
		node := newNode()
		for c := range node.tracker.exec.due {
			node.tracker.exec.due[c].Tie = func(a, b *probe) int {
				n++
				return tie(a, b)
			}
		}
		node.add("a", pods, 1, time.Millisecond)
		for _, p := range node.tracker.pods {
			for _, probe := range p.probes {
				probe.due = epoch // all at the same time, so that each comparison is one of ties
				node.tracker.agenda.Set(probe, epoch)
			}
		}
		for begun := 0; begun < pods; {
			runs, _ := node.tracker.next(epoch)
			for _, p := range runs {
				node.tracker.done(epoch, p, check.Result{Success: true}, nil)
			}
			begun += len(runs)
		}
		return n
	}
	if one, two := compared(500), compared(1000); one == 0 || two > 3*one {
		t.Errorf("500 runs took %d comparisons, 1000 took %d", one, two)
	}
}
