// Package plan decides what a pod's worker does next: a pure function of what the pod should
// be, what the runtime says it is, what else the worker knows, and the time.
package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// Kind is what an Action does.
type Kind string

const (
	// CreateSandbox stops what is left of older sandboxes and creates one with Attempt.
	CreateSandbox Kind = "create sandbox"
	// StopSandbox stops sandbox ID and what runs in it.
	StopSandbox Kind = "stop sandbox"
	// EnsureImage makes the image of Container present.
	EnsureImage Kind = "ensure image"
	// StartContainer creates and starts Container with Attempt; with an ID it starts that created container.
	StartContainer Kind = "start container"
	// StopContainer ends container ID within Grace.
	StopContainer Kind = "stop container"
	// RunPreStop runs the preStop hook of container ID within Grace, and doesn't stop it.
	RunPreStop Kind = "run preStop hook"
	// ResizePod gives the pod's cgroup and the running containers the resources of the spec.
	ResizePod Kind = "resize pod"
	// SetCPUs gives container ID the CPUs that it may run on, and the NUMA nodes of its memory.
	SetCPUs Kind = "set CPUs"
	// RemoveContainer removes the dead container ID.
	RemoveContainer Kind = "remove container"
	// ReleaseNode removes the pod's cgroup and gives back its range of user IDs, once its volumes are unmounted.
	ReleaseNode Kind = "release node resources"
	// ReadPod only reads the pod from the runtime.
	ReadPod Kind = "read pod"
	// RemoveSandboxes removes all sandboxes with their dead containers, the logs and the pod's directory.
	RemoveSandboxes Kind = "remove sandboxes"
)

// Action is one thing to do. Two actions with equal Key are the same thing to do: the worker
// doesn't begin one that is under way.
type Action struct {
	Kind      Kind
	Container string
	ID        string
	SandboxID string
	Attempt   uint32
	// Grace is how long a container may take to stop.
	Grace time.Duration
	// HookRan means that the container to be stopped has had its preStop hook, and its Killing event, by RunPreStop.
	HookRan bool
	// Reason is ToReplace or ForResize where a container is stopped to be started anew. Message says why it is stopped, in
	// the words of the Killing event.
	Reason  string
	Message string
	// Cpuset is what SetCPUs sets.
	Cpuset
}

// Cpuset is where a container may run and have its memory, as lists of CPUs and of NUMA nodes; empty if nobody decides
// on that.
type Cpuset struct{ CPUs, MemoryNodes string }

// Key identifies what must be done.
func (a Action) Key() string {
	switch a.Kind {
	case StopContainer, StopSandbox, RemoveContainer, RunPreStop, SetCPUs:
		return string(a.Kind) + " " + a.ID
	}
	return string(a.Kind) + " " + a.Container
}

// Starts reports whether the action brings something up, so that a pod that must stop must not begin it.
func (a Action) Starts() bool {
	return a.Kind == CreateSandbox || a.Kind == EnsureImage || a.Kind == StartContainer
}

// Desired is what the pod should be.
type Desired struct {
	Pod *corev1.Pod
	// Stop means that all containers should end, within Grace of StopSince.
	Stop      bool
	StopSince time.Time
	Grace     time.Duration
	// StopMessage says why, in the words of the Killing event.
	StopMessage string
}

// Failure is an action that failed and when it must be tried again.
type Failure struct {
	// Of is the action that failed.
	Of      Kind
	Reason  string
	Message string
	RetryAt time.Time
}

// Facts is what the worker knows besides the spec and the runtime's report.
type Facts struct {
	// VolumesMounted is true once every volume of the pod is usable.
	VolumesMounted bool
	// Allocating means that the pod doesn't have its devices, CPUs or claims yet; AllocatingWhy says why.
	Allocating    bool
	AllocatingWhy string
	// Containers are what is known of the containers, by name.
	Containers map[string]ContainerFacts
	// Failures are by container name; the sandbox's is under "", that of any other action under its key.
	Failures map[string]Failure
	// SandboxesStopped are sandboxes, by ID, whose StopPodSandbox has succeeded: one that isn't ready may still
	// have its network.
	SandboxesStopped map[string]bool
	// MaxBackoff caps the crash back-off (KEP-5593).
	MaxBackoff time.Duration
	// Resize is the resize to be done; nil for none.
	Resize *topic.Resize
	// ResizeWaits is true while pods that were preempted for it have not ended.
	ResizeWaits bool
	// Settling means that calls of an earlier process of the daemon may be under way still.
	Settling bool
	// Hash is the kubelet's container hash.
	Hash func(*corev1.Container) string
}

// ContainerFacts are what the worker knows of a container.
type ContainerFacts struct {
	// Image means that its image was made ready for the next start.
	Image bool
	// Busy means that it is being started or that its postStart hook runs.
	Busy bool
	// Probes are the last verdicts, by kind.
	Probes map[string]topic.Probe
	// Cpuset is where it may run.
	Cpuset
	// BackoffBase is the restart count at which the crash back-off last started over.
	BackoffBase int
	// Runs are by container ID.
	Runs map[string]RunFacts
}

// RunFacts are what the worker knows of one run of a container.
type RunFacts struct {
	// Replaced means that it was stopped in order to be started again.
	Replaced bool
	// Resized means that this was for other resources: it is started whatever its restart policy.
	Resized bool
	// HookRan means that its preStop hook has run by RunPreStop.
	HookRan bool
	// Cpuset is what it was last given by SetCPUs.
	Cpuset
}

// Stops takes note of why the run is stopped: the reason is the action's.
func (r *RunFacts) Stops(reason string) {
	r.Resized = r.Resized || reason == ForResize
	r.Replaced = r.Replaced || r.Resized || reason == ToReplace
}

// The reasons of the stops of containers that are started anew.
const (
	ToReplace = "replace"
	ForResize = "resize"
)

// Waiting says why a container doesn't run yet.
type Waiting struct {
	Reason  string
	Message string
	// Until is when a crash back-off ends.
	Until time.Time
}

// Plan is what to do now and what is waited for.
type Plan struct {
	Actions []Action
	// Waiting are the reasons of the containers that don't run, by name.
	Waiting map[string]Waiting
	// WakeAt is when time alone changes the plan; zero if never.
	WakeAt time.Time
	// Complete means that no container runs that would keep the pod alive and none will be started
	// again: the pod must be stopped (sidecars may still run).
	Complete bool
	// Stopped means that no container runs and none will be started; Released, that the sandboxes are stopped too.
	Stopped  bool
	Released bool
	// NewBackoffBase are containers whose crash back-off starts over at the given restart count.
	NewBackoffBase map[string]int
}

// The waiting reasons that don't come from a failure.
const (
	ReasonContainerCreating = "ContainerCreating"
	ReasonPodInitializing   = "PodInitializing"
	ReasonCrashLoopBackOff  = "CrashLoopBackOff"
)

// Make plans one step. It doesn't change its arguments.
func Make(d Desired, obs topic.PodObservation, f Facts, now time.Time) Plan {
	p := &planner{
		situation: situation{Desired: d, obs: obs, facts: f, now: now},
		plan:      Plan{Waiting: map[string]Waiting{}, NewBackoffBase: map[string]int{}},
	}
	if d.Stop {
		stopper{p}.stop()
	} else {
		p.run()
	}
	return p.plan
}

// situation is what a plan is made from, and answers the questions about it.
type situation struct {
	Desired
	obs   topic.PodObservation
	facts Facts
	now   time.Time
	// sandbox is the usable sandbox, or nil.
	sandbox *topic.Sandbox
}

// planner makes the plan.
type planner struct {
	situation
	plan Plan
	// resizing means that no container may be started before the pod has its new size.
	resizing bool
}

// known is what the worker knows of the container.
func (s *situation) known(container string) ContainerFacts { return s.facts.Containers[container] }

func (p *planner) do(a Action) { p.plan.Actions = append(p.plan.Actions, a) }

func (p *planner) wakeAt(t time.Time) {
	if p.plan.WakeAt.IsZero() || t.Before(p.plan.WakeAt) {
		p.plan.WakeAt = t
	}
}

func (p *planner) wait(container, reason, message string) {
	p.plan.Waiting[container] = Waiting{Reason: reason, Message: message}
}

// run plans a pod that should be up.
func (p *planner) run() {
	if !p.obs.Complete() {
		// What couldn't be inspected looks as if it had changed.
		p.waitForStart()
		return
	}
	p.sandbox = Current(p.Pod, p.obs)
	p.clearInterrupted()
	if p.complete() {
		p.plan.Complete = true
		return
	}
	if !p.facts.Allocating {
		p.ensureImages()
	}
	p.setCPUs()
	if p.sandbox == nil {
		p.renewSandbox()
		p.waitForStart()
		return
	}
	for _, old := range p.obs.Sandboxes {
		if old.Ready && old.ID != p.sandbox.ID {
			p.do(Action{Kind: StopSandbox, ID: old.ID})
		}
	}
	p.resize()
	p.ephemeral()
	if p.driveInits() {
		p.mainContainers()
	}
}

// renewSandbox plans a new sandbox, once nothing runs in the old ones.
func (p *planner) renewSandbox() {
	for _, c := range p.obs.Containers {
		if alive(c) {
			p.do(Action{Kind: StopContainer, Container: c.Name, ID: c.ID, Grace: PodGrace(p.Pod), Message: "Stopping container"})
		}
	}
	if Runs(p.obs) {
		return
	}
	if failure, ok := p.facts.Failures[""]; ok && p.now.Before(failure.RetryAt) {
		p.wakeAt(failure.RetryAt)
		return
	}
	if p.facts.Allocating {
		return
	}
	attempt := uint32(0)
	for _, s := range p.obs.Sandboxes {
		attempt = max(attempt, s.Attempt+1)
	}
	p.do(Action{Kind: CreateSandbox, Attempt: attempt})
}

// waitForStart gives every container that must be started the reason it has before the sandbox is there.
func (p *planner) waitForStart() {
	for c := range podspec.InitAndMain(&p.Pod.Spec) {
		if p.isDue(c) {
			p.wait(c.Name, p.creating(), p.facts.AllocatingWhy)
		}
	}
}

// setCPUs gives running containers the CPUs that they may run on now. Those that are shared change when a container
// gets or leaves CPUs of its own.
func (p *planner) setCPUs() {
	for i := range p.obs.Containers {
		c := &p.obs.Containers[i]
		wanted := p.known(c.Name).Cpuset
		if c.State == topic.ContainerRunning && wanted != (Cpuset{}) && p.known(c.Name).Runs[c.ID].Cpuset != wanted {
			p.do(Action{Kind: SetCPUs, Container: c.Name, ID: c.ID, Cpuset: wanted})
		}
	}
}

// creating is the waiting reason of a container that is on its way.
func (s *situation) creating() string {
	if len(s.Pod.Spec.InitContainers) > 0 {
		return ReasonPodInitializing
	}
	return ReasonContainerCreating
}

// isDue reports whether the container has yet to be started or started again.
func (s *situation) isDue(c *corev1.Container) bool {
	last := s.latest(c.Name)
	return last == nil || s.restarts(c, last)
}

// PodGrace is the pod's own termination grace period: 30 s unless the spec says otherwise.
func PodGrace(pod *corev1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return 30 * time.Second
}

// Current is the newest sandbox if containers can be started in it, else nil: it must be ready,
// have the network the spec asks for, and an address of its own unless it shares the host's.
func Current(pod *corev1.Pod, obs topic.PodObservation) *topic.Sandbox {
	if len(obs.Sandboxes) == 0 {
		return nil
	}
	s := &obs.Sandboxes[0]
	if !s.Ready || s.HostNetwork != pod.Spec.HostNetwork || (!s.HostNetwork && len(s.IPs) == 0) {
		return nil
	}
	return s
}
