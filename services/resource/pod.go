package resource

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra"
)

// pod is a pod that waits for its allocation or has one.
type pod struct {
	spec      *corev1.Pod
	firstSeen time.Time
	lifecycle topic.Lifecycle
	// sandboxed is true where a sandbox of it is up.
	sandboxed bool
	// assigned is true once it has its devices, CPUs and memory; refused is why it doesn't get them.
	assigned bool
	refused  *refusal
	// waiting is what it waits for, notBefore when to try again to give it what it asks for.
	waiting   string
	notBefore time.Time
	// cancel ends its assignment under way; nil if there is none.
	cancel context.CancelCauseFunc
	// chosen is true once devices have been chosen for it, of plugins that were there. It waits for a plugin that goes
	// afterwards. lost is when one first went or hung, from which on the wait counts.
	chosen bool
	lost   time.Time
	// taking is true while what is kept for it is being assigned. behind is true where it waits for others that may free
	// what it asks for.
	taking, behind bool
	// held is true where it had something before that assignment began, as after a restart: its containers may run with
	// it.
	held bool
	// claims is how far its claims are (DRA); nil where it has none, or nothing is known of them yet.
	claims *dra.Status
	// contradicted are the containers about which it was logged that plugins contradict each other.
	contradicted map[string]bool
	// changed is true where what is said of it may have changed.
	changed bool
	// stated is what this process has said of it, before what an earlier one has; nil for nothing.
	stated, before *topic.Allocation
}

// last is what was last said of the pod.
func (p *pod) last() topic.AllocationPhase {
	switch {
	case p.stated != nil:
		return p.stated.Phase
	case p.before != nil:
		return p.before.Phase
	}
	return ""
}

// refusal is why a pod can't have what it asks for, in its Failed status.
type refusal struct{ reason, message string }

// Reasoned errors have a reason of their own in the pod's status.
type reasoned interface {
	error
	Reason() string
}

// undecided reports whether the pod's assignment is yet to begin.
func (p *pod) undecided() bool {
	return p.lifecycle == topic.Syncing && !p.assigned && p.refused == nil && p.cancel == nil
}

// stop ends the assignment under way, if there is one.
func (p *pod) stop(cause error) {
	if p.cancel != nil {
		p.cancel(cause)
		if cause == nil {
			p.cancel = nil
		}
	}
}

// ended reports whether no container of the pod runs or ever will, and no sandbox has what it was given.
func (p *pod) ended() bool { return p.lifecycle == topic.Terminated }
