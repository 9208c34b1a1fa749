// Package worker runs one pod: one goroutine owns its state, asks the plan what to do, has it done
// side by side by the Executor, and reports. It is the thin shell around package plan.
//
// What belongs together is one part with one owner: state is what is known of the pod (view as the runtime has it,
// ending how far its end is, containers a record of each container), actions are those under way and those that failed,
// publisher is what the bus has been told.
package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// Worker is one pod's worker.
type Worker struct {
	executor Executor
	report   Reporter
	log      *slog.Logger

	in      chan func(*Worker)
	results chan result
	done    chan struct{}
	// background are the goroutines of actions, and of readers of termination messages.
	background sync.WaitGroup
	over       chan struct{}

	// The rest is owned by the goroutine of Run.
	state     *state
	actions   *actions
	publisher *publisher
	announcer *announcer
	rounds    rounds
}

// New makes a worker. obs is the runtime's report on the pod at this time.
func New(cfg Config, obs topic.PodObservation, executor Executor, report Reporter, log *slog.Logger) *Worker {
	w := &Worker{
		executor: executor, report: report,
		log: log.With("pod", cfg.Pod.Name, "namespace", cfg.Pod.Namespace, "uid", string(cfg.Pod.UID)),
		in:  make(chan func(*Worker)), results: make(chan result), done: make(chan struct{}), over: make(chan struct{}),
		state: newState(cfg, obs), actions: newActions(), rounds: rounds{metrics: cfg.Metrics, uid: cfg.Pod.UID},
	}
	w.publisher = newPublisher(w.state, w.actions, report)
	w.announcer = &announcer{state: w.state, report: report, log: w.log}
	if w.state.endedBefore() {
		close(w.over)
	}
	return w
}

// Gone reports, after Run has returned, whether the pod is gone for good, not only the daemon stopped.
func (w *Worker) Gone() bool { return w.state.ending.gone }

// Over reports whether no container of the pod runs or ever will, and no sandbox does. It may be called from any
// goroutine.
func (w *Worker) Over() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// Update hands over the pod's newest form, with the resources that it holds now, and the answer to a request for
// others.
func (w *Worker) Update(pod *corev1.Pod, pending *Pending) {
	w.send(func(w *Worker) { w.update(pod, pending) })
}

// Await has the pod's next resize wait for room, where there is any to wait for.
func (w *Worker) Await(room Room) {
	if len(room.ends) > 0 {
		w.send(func(w *Worker) { w.state.Room = room })
	}
}

// Remove says that no source wants the pod any more.
func (w *Worker) Remove() { w.send(func(w *Worker) { w.state.ending.removed = true }) }

// Wake has the worker look at the node's facts again.
func (w *Worker) Wake() { w.send(func(*Worker) {}) }

// Evict ends the pod as Failed. A pod that the node is ending already keeps its reason, and may only get less time. A
// pod whose containers have all ended keeps its phase.
func (w *Worker) Evict(e Eviction) { w.send(func(w *Worker) { w.evict(e) }) }

// Observe hands over a reading of the runtime. One from before the last action is at most a reason to read the pod
// again.
func (w *Worker) Observe(obs topic.PodObservation) { w.send(func(w *Worker) { w.observe(&obs) }) }

// Vanished says that the runtime had nothing of the pod; the worker reads the pod to see whether that is still so.
func (w *Worker) Vanished() {
	w.send(func(w *Worker) { w.state.view.vanished() })
}

// Volumes hands over the state of the pod's volumes.
func (w *Worker) Volumes(v topic.PodVolumes) { w.send(func(w *Worker) { w.state.volumes = v }) }

// Allocation hands over what the pod has for itself, waits for or can't have.
func (w *Worker) Allocation(a topic.Allocation) { w.send(func(w *Worker) { allocate(w, a) }) }

// Probe hands over the verdict of one of the pod's probes.
func (w *Worker) Probe(key topic.ProbeKey, p topic.Probe) {
	w.send(func(w *Worker) { w.state.containers.of(key.Container).probe(key.Kind, p) })
}

// send never blocks for long: the worker's goroutine does no I/O.
func (w *Worker) send(f func(*Worker)) {
	select {
	case w.in <- f:
	case <-w.done:
	}
}

// Run drives the pod until it is gone or ctx ends. Actions under way when ctx ends are given opCtx's life to finish.
// See Wait for what may outlive Run.
func (w *Worker) Run(ctx, opCtx context.Context) {
	defer close(w.done)
	defer w.drain()
	w.readMessages()
	for !w.state.ending.gone {
		wake := w.step(opCtx)
		timer := time.NewTimer(wake)
		select {
		case f := <-w.in:
			f(w)
		case r := <-w.results:
			w.finish(r)
		case <-timer.C:
		case <-w.state.Room.next():
			w.state.Room.ended()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
	w.rounds.end()
}

// drain waits for the actions under way; waiting ones end with their context. A goroutine that has news for the worker
// doesn't wait for that: it needs none any more.
func (w *Worker) drain() {
	w.actions.cancel(errShutdown, func(f *inflightAction) bool {
		switch f.action.Kind {
		case plan.StopContainer, plan.RunPreStop, plan.EnsureImage, plan.ReadPod:
			return true
		}
		return false
	})
	for len(w.actions.inflight) > 0 {
		select {
		case r := <-w.results:
			w.finish(r)
		case <-w.in:
		}
	}
}

// Wait waits, after Run has returned, for what it has left: the readers of termination messages, which a disk that
// hangs may keep for longer than the pod is there.
func (w *Worker) Wait() { w.background.Wait() }
