package dra

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra/claims"
)

const (
	// firstPause and lastPause bound the pause after an attempt has failed.
	firstPause = time.Second
	lastPause  = time.Minute
)

// attempt is one to have the drivers called.
type attempt struct {
	// calls is how many drivers are being called; problems are what those say that have failed.
	calls    int
	problems []string
	// began is when the attempt has begun, and failedAt when the last one has failed.
	began, failedAt time.Time
}

// pod is a pod with claims.
type pod struct {
	uid types.UID
	// order is that in which pods came.
	order uint64
	// object is nil for a pod that is gone.
	object *corev1.Pod
	needs  []claims.Need
	// invalid is why it can't be known what the pod needs.
	invalid error
	stage   Stage
	ended   bool

	// fetching is the reading of its claims, while they are read; wanted is what was read, until the attempt is over.
	fetching *fetching
	wanted   []claims.Wanted
	// adopted is true once the book has what the API server says of a pod that has ended.
	adopted bool
	attempt

	prepared, released bool
	failures           int
	notBefore          time.Time
	// lacks are the drivers whose coming is a reason to try again at once.
	lacks           []string
	reason, message string
	told            Status
}

// log has what names the pod.
func (p *pod) log(l *slog.Logger) *slog.Logger {
	l = l.With("uid", p.uid)
	if p.object == nil {
		return l
	}
	return l.With("namespace", p.object.Namespace, "pod", p.object.Name)
}

// hear takes what the daemon says of the pod.
func (p *pod) hear(w word) {
	if w.pod == nil || w.again {
		p.told = Status{}
	}
	if w.pod != nil {
		p.object = w.pod
		needs, err := claims.Needs(w.pod)
		switch {
		case err == nil && !slices.Equal(p.needs, needs):
			p.needs, p.wanted, p.prepared, p.notBefore = needs, nil, false, time.Time{}
			p.stopFetching()
		case err == nil && p.invalid != nil:
			p.notBefore = time.Time{}
		}
		if err == nil || !p.prepared {
			p.invalid = err
		}
	}
	ended := w.ended || w.pod == nil
	p.stage = w.stage
	if ended != p.ended {
		p.ended, p.wanted, p.failures, p.notBefore = ended, nil, 0, time.Time{}
		p.reason, p.message, p.began = "", "", time.Time{}
		p.stopFetching()
		if p.calls > 0 {
			p.waits("waiting for the end of a call of its DRA drivers")
		}
		if !ended { // it is back
			p.prepared, p.released, p.adopted = false, false, false
		}
	}
	if w.pod == nil {
		p.object = nil
	}
}

func (p *pod) stopFetching() {
	if p.fetching != nil {
		p.fetching.stop()
		p.fetching = nil
	}
}

// waits says what the pod waits for.
func (p *pod) waits(message string) {
	p.reason, p.message = reasonPreparing, message
	if p.ended {
		p.reason = reasonUnpreparing
	}
}

// begins notes when an attempt has begun.
func (p *pod) begins(now time.Time) {
	if p.began.IsZero() {
		p.began = now
	}
}

// took is how long the attempt has taken.
func (p *pod) took(now time.Time) time.Duration {
	if p.began.IsZero() {
		return 0
	}
	return now.Sub(p.began)
}

// arrived has the next attempt made soon: a driver that was missed is there.
func (p *pod) arrived() {
	if at := p.failedAt.Add(firstPause); at.Before(p.notBefore) {
		p.notBefore = at
	}
}

// failed puts the next attempt off.
func (p *pod) failed(now time.Time) {
	p.failures++
	p.failedAt, p.began = now, time.Time{}
	p.notBefore = now.Add(pause.After(p.failures, firstPause, lastPause))
	p.wanted, p.problems = nil, nil
}

// finished ends an attempt that has succeeded.
func (p *pod) finished() {
	p.wanted, p.problems, p.lacks, p.failures, p.notBefore = nil, nil, nil, 0, time.Time{}
	p.reason, p.message, p.began = "", "", time.Time{}
}

// idle reports whether nothing is under way for the pod, and something is left to be done.
func (p *pod) idle() bool {
	return p.calls == 0 && p.fetching == nil && ((p.ended && !p.released) || (!p.ended && !p.prepared))
}

// fail ends an attempt, and tells the pod's user why.
func (m *Manager) fail(p *pod, err error) {
	operation, reason, text := opPrepare, reasonPrepareFailed, fmt.Sprintf("prepare dynamic resources: %v", err)
	event := "Failed to prepare dynamic resources: " + text
	if p.ended {
		operation, reason, text = opUnprepare, reasonUnprepareFailed, fmt.Sprintf("unprepare dynamic resources: %v", err)
		event = "Failed to unprepare dynamic resources: " + text
	}
	m.metrics.done(operation, true, p.took(m.now()))
	changed := p.message != text
	p.failed(m.now())
	p.reason, p.message = reason, text
	say := p.log(m.log).Debug
	if changed {
		say = p.log(m.log).Warn
	}
	say("dynamic resources of a pod, retrying", "error", text, "failures", p.failures)
	if p.object == nil || m.ports.Events == nil {
		return
	}
	m.ports.Events.Record(topic.Event{
		Kind: "Pod", Ref: topic.RefOf(p.object), Type: corev1.EventTypeWarning, Reason: reason, Message: event,
		At: m.now(),
	})
}

// publish has the daemon hear of the pod, if there is something to hear.
func (m *Manager) publish(p *pod) {
	if p.object == nil {
		return
	}
	s := Status{Phase: topic.Allocating, Reason: p.reason, Message: p.message}
	switch {
	case p.released:
		s.Phase = topic.AllocationReleased
	case p.ended && p.told.Phase == topic.Allocated:
		s.Phase, s.Containers, s.Uses = topic.Allocated, p.told.Containers, p.told.Uses
	case p.prepared:
		s.Phase = topic.Allocated
		s.Containers = m.book.Containers(p.object, p.needs, func(driver string, d claims.Device) (
			corev1.ResourceHealthStatus, string,
		) {
			return m.health.Of(driver, d.Pool, d.Name)
		})
		s.Uses = m.book.Uses(p.object, p.needs)
	}
	if !reflect.DeepEqual(s, p.told) {
		p.told = s
		m.tell(p.uid, s)
	}
}
