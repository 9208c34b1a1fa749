// Package worker runs one pod: one goroutine owns its state, asks the plan what to do, has it done
// side by side by the Hands, and reports. It is the thin shell around package plan.
package worker

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/slots"
)

// Hands does what a plan says.
type Hands interface {
	// Do returns after the deed; it may take as long as the context allows.
	Do(ctx context.Context, s Snapshot, a plan.Action) Outcome
	// TerminationMessage reads what an ended container left; it takes as long as the disk does.
	TerminationMessage(c *topic.Container) string
}

// Reporter is what a worker writes.
type Reporter interface {
	// Pod states the pod, and what the API server has of its status; nil leaves either as it was stated.
	Pod(p *topic.Pod, object *topic.APIPod)
	Status(s topic.PodStatus)
	Event(pod *corev1.Pod, fieldPath, eventType, reason, message string)
}

// Snapshot is what a deed may rely on. Nobody changes it.
type Snapshot struct {
	Pod     *corev1.Pod
	Obs     topic.PodObservation
	Volumes topic.PodVolumes
	// Images are what the container is to be created with, for StartContainer.
	Images Images
	// Before are the resources that running containers have still, by their ID, for ResizePod.
	Before map[string]corev1.ResourceRequirements
	// Turn is the deed's place among those that wait for a slot.
	Turn slots.Turn
	// Static is true for a pod from a manifest.
	Static bool
	// Stopped are the sandboxes, by ID, that were stopped.
	Stopped map[string]bool
	// Going is true for a pod that is removed, not only ended: its directory may go too.
	Going bool
}

// Outcome is how a deed ended.
type Outcome struct {
	// Obs is a reading of the runtime after the deed, if one was possible.
	Obs *topic.PodObservation
	// Images are what EnsureImage made present.
	Images Images
	// Err is why the deed failed. A *Failed tells the waiting reason.
	Err error
}

// Images are a container's own image and those of the image volumes it mounts, by the volume's name.
type Images struct {
	image.Image
	Volumes map[string]*runtimeapi.ImageSpec
}

// Failed is a failure with the reason and message that the container's waiting state shows.
type Failed struct {
	Reason  string
	Message string
	// RetryAt is when to try again; zero leaves it to the worker's own back-off.
	RetryAt time.Time
}

// Error is the failure's message.
func (f *Failed) Error() string { return f.Message }

// Config is what a worker is made with.
type Config struct {
	Pod       *corev1.Pod
	Source    topic.Source
	FirstSeen time.Time
	// Rank is the place of the pod's starts among those of others.
	Rank uint64
	// NextRank gives places behind all that were given before, to the pod's end; nil means that it has the place of its starts.
	NextRank func() uint64
	// Previous is the last known status, of the API server or from the bus.
	Previous corev1.PodStatus
	// Reject ends the pod before it began: it failed admission with this reason.
	Reject *Failed
	// Restored is what the bus still has of the pod from before a restart of this daemon.
	Restored *topic.Pod
	// Settling tells whether calls of an earlier run of this daemon may be under way still; nil means never.
	Settling func() bool
	// Pending is the answer to a wish for other resources than Pod has; nil if there is none.
	Pending *Pending
	Node    Node
	// Crowded tells whether pods queue for their starts or their ends; nil means never.
	Crowded func() bool
	// Applied is the CPU and memory that a pod's cgroup has by its spec, nil if it has none of its own. A nil function means
	// that for all pods.
	Applied func(pod *corev1.Pod) *corev1.ResourceRequirements
	// Meter is told what is measured.
	Meter Meter
}

// Meter measures workers.
type Meter interface {
	// Worked tells that something was under way all the time that it took.
	Worked(operation string, took time.Duration)
	// Stated tells of a status that takes the place of an earlier one.
	Stated(firstSeen time.Time, before, after *corev1.PodStatus)
}

// Node are the facts of the node that a worker needs. They may change while it runs.
type Node interface {
	// HostIPs are the node's addresses, primary first.
	HostIPs() []string
	// RuntimeName is the prefix of container IDs.
	RuntimeName() string
	// RecursiveReadOnly tells whether the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly(pod *corev1.Pod) bool
	// MaxBackoff caps the crash back-off; 0 is the default.
	MaxBackoff() time.Duration
	// NetworkProblem is why pods can't have a network; empty where they can.
	NetworkProblem() string
}

// Worker is one pod's worker.
type Worker struct {
	Config
	hands  Hands
	report Reporter
	log    *slog.Logger

	in      chan func(*Worker)
	results chan result
	done    chan struct{}
	ended   atomic.Bool
	over    atomic.Bool

	// The rest is owned by the goroutine of Run.
	obs   topic.PodObservation
	doubt bool // obs may be out of date; the pod is to be read
	// unseen is when a deed ended whose effect no reading has shown yet; without a time if there is none.
	unseen    topic.PodObservation
	partial   time.Time // since when readings are incomplete; zero if the last was complete
	volumes   topic.PodVolumes
	probes    map[plan.ProbeKey]topic.Probe
	images    map[string]ready
	failures  map[string]plan.Failure
	tries     map[string]int // failures in a row, by the deed's key
	busy      map[string]bool
	replaced  map[string]bool
	stopped   map[string]bool      // sandboxes, by ID
	hooksRan  map[string]bool      // containers, by ID, whose preStop hook has run before their turn
	base      map[string]int       // restart counts at which the crash back-off began anew, by container name
	messages  map[string]string    // termination messages, by container ID
	reading   map[string]time.Time // since when those are read that aren't known yet, by container ID
	announced map[string]bool      // containers whose back-off was announced by an Event
	flight    map[string]*flight
	leaving   uint64        // the rank of the removal of what is left; zero before it was due
	urgent    chan struct{} // closed once the node needs the pod's end
	network   string        // why the pod waits for the node's network
	stop      *stop
	removed   bool
	resize    *topic.Resize // an in-place resize that isn't done; nil for none. Never changed, only replaced
	lifecycle topic.Lifecycle
	endedAt   time.Time // when no container ran any more
	released  bool
	gone      bool
	start     time.Time
	status    corev1.PodStatus // last computed
	reported  corev1.PodStatus // last stated on the bus
	heldSince time.Time        // since when a status waits to be stated; zero if none does
	stated    stated           // what the bus has of the pod
	round     round            // of deeds without a pause
}

// flight is a deed under way.
type flight struct {
	action plan.Action
	pod    *corev1.Pod // as it was when the deed began
	cancel context.CancelCauseFunc
}

type result struct {
	*flight
	Outcome
}

// ready are images that were made present for a container whose image had that name then.
type ready struct {
	name string
	Images
}

// stop is why and how the pod ends.
type stop struct {
	since   time.Time
	grace   time.Duration
	killing string // message of the Killing event
	fail    bool
	reason  string
	message string
	// disruption and disruptionMessage are those of the DisruptionTarget condition; empty for none.
	disruption, disruptionMessage string
	// rank is the place of this end among those of other pods.
	rank uint64
}

// New makes a worker. obs is the runtime's report on the pod at this time.
func New(cfg Config, obs topic.PodObservation, hands Hands, report Reporter, log *slog.Logger) *Worker {
	w := &Worker{
		Config: cfg, hands: hands, report: report,
		log: log.With("pod", cfg.Pod.Name, "namespace", cfg.Pod.Namespace, "uid", string(cfg.Pod.UID)),
		in:  make(chan func(*Worker)), results: make(chan result), done: make(chan struct{}),
		obs:    obs,
		probes: map[plan.ProbeKey]topic.Probe{}, images: map[string]ready{}, failures: map[string]plan.Failure{},
		tries: map[string]int{}, busy: map[string]bool{}, replaced: map[string]bool{}, stopped: map[string]bool{}, hooksRan: map[string]bool{}, base: map[string]int{},
		messages: map[string]string{}, reading: map[string]time.Time{}, announced: map[string]bool{}, flight: map[string]*flight{}, urgent: make(chan struct{}),
		lifecycle: topic.Syncing, status: cfg.Previous, reported: cfg.Previous, start: time.Now(),
		stated: stated{started: startedBefore(cfg.Pod)},
	}
	if t := cfg.Previous.StartTime; t != nil {
		w.start = t.Time
	}
	if cfg.Restored != nil {
		maps.Copy(w.base, cfg.Restored.BackoffBase)
		w.resize = cfg.Restored.Resize
	}
	w.measure(obs)
	w.doubt = !w.partial.IsZero()
	w.seedBackoff()
	w.restore()
	return w
}

// seedBackoff has the crash back-off of a container that isn't known begin with its newest run: restarts from before the
// daemon knew of the pod, or from before a reboot, may be of long ago.
func (w *Worker) seedBackoff() {
	for i := range w.obs.Containers {
		c := &w.obs.Containers[i]
		if _, known := w.base[c.Name]; !known {
			w.base[c.Name] = c.RestartCount
		}
	}
}

// restore goes on with a termination that an earlier run of the daemon had begun: its deadline stays the same, unless the clock
// was set back meanwhile.
func (w *Worker) restore() {
	r := w.Restored
	if r == nil || r.Deadline == nil || r.GracePeriodSeconds == nil || r.Lifecycle == topic.Syncing {
		return
	}
	grace := time.Duration(*r.GracePeriodSeconds) * time.Second
	since := r.Deadline.Add(-grace)
	if now := time.Now(); since.After(now) {
		since = now
	}
	w.stop = &stop{
		since: since, grace: grace, killing: "Stopping container", reason: w.Previous.Reason, message: w.Previous.Message, rank: w.nextRank(),
	}
	// A pod of which a reason was stated was ended by the node. Its phase is Failed only once nothing runs any more.
	w.stop.fail = w.Previous.Phase == corev1.PodFailed || w.Previous.Reason != ""
	for _, c := range w.Previous.Conditions {
		if w.stop.fail && c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			w.stop.disruption, w.stop.disruptionMessage = c.Reason, c.Message
			w.hurry()
		}
	}
}

// Gone tells, after Run has returned, whether the pod is gone for good, not only the daemon stopped.
func (w *Worker) Gone() bool { return w.gone }

// Ending tells whether the pod's resources are free, or promised to another pod by its eviction. It may be asked
// from any goroutine.
func (w *Worker) Ending() bool { return w.ended.Load() }

// Over tells whether no container of the pod runs or ever will. It may be asked from any goroutine.
func (w *Worker) Over() bool { return w.over.Load() }

// Update hands over the pod's newest form, with the resources that it holds now, and the answer to a wish for others.
func (w *Worker) Update(pod *corev1.Pod, pending *Pending) {
	w.send(func(w *Worker) { w.update(pod, pending) })
}

// Remove says that no source wants the pod any more.
func (w *Worker) Remove() { w.send(func(w *Worker) { w.removed = true }) }

// Eviction is why the node ends a pod.
type Eviction struct {
	// Reason and Message are the pod's in its Failed status.
	Reason  string
	Message string
	// Disruption is the reason of the DisruptionTarget condition (KEP-3329), DisruptionMessage its message; an empty one is
	// Message.
	Disruption, DisruptionMessage string
	// Grace bounds the pod's own grace period; zero leaves it.
	Grace time.Duration
}

// Evict ends the pod as Failed; a pod that is ended already by the node keeps its reason and may only get less time, and one whose
// containers have all ended keeps its phase.
func (w *Worker) Evict(e Eviction) {
	w.ended.Store(true)
	w.send(func(w *Worker) { w.evict(e) })
}

// Observe hands over a report of the runtime; one from before the last deed is no more than a reason to look again.
func (w *Worker) Observe(obs topic.PodObservation) { w.send(func(w *Worker) { w.observe(&obs) }) }

// Vanished says that the runtime had nothing of the pod; the worker looks whether that is so still.
func (w *Worker) Vanished() {
	w.send(func(w *Worker) { w.doubt = w.doubt || len(w.obs.Sandboxes)+len(w.obs.Containers) > 0 })
}

// Volumes hands over the state of the pod's volumes.
func (w *Worker) Volumes(v topic.PodVolumes) { w.send(func(w *Worker) { w.volumes = v }) }

// Probe hands over a probe's verdict.
func (w *Worker) Probe(key plan.ProbeKey, p topic.Probe) {
	w.send(func(w *Worker) { w.probes[key] = p })
}

// send never blocks for long: the worker's goroutine does no I/O.
func (w *Worker) send(f func(*Worker)) {
	select {
	case w.in <- f:
	case <-w.done:
	}
}

// Run drives the pod until it is gone or ctx ends. Deeds under way when ctx ends are given
// opCtx's life to finish.
func (w *Worker) Run(ctx, opCtx context.Context) {
	defer close(w.done)
	defer w.drain()
	w.readMessages()
	for !w.gone {
		wake := w.step(opCtx)
		timer := time.NewTimer(wake)
		select {
		case f := <-w.in:
			f(w)
		case r := <-w.results:
			w.finish(r)
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
	w.endRound()
}

// drain waits for the deeds under way; waiting ones end with their context.
func (w *Worker) drain() {
	for _, f := range w.flight {
		if f.action.Kind == plan.StopContainer || f.action.Kind == plan.RunPreStop || f.action.Kind == plan.EnsureImage || f.action.Kind == plan.ReadPod {
			f.cancel(errShutdown)
		}
	}
	for len(w.flight) > 0 {
		w.finish(<-w.results)
	}
}
