package status

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
)

// merged is a pod's status as this daemon computes it, and what pod.status has of it.
type merged struct {
	// status is the last that was computed, at first what was retained on the bus; nil where there is none. It is never
	// changed.
	status *corev1.PodStatus
	// stale is true when something that the status follows from has changed since.
	stale bool
	// said is the status that this process has published last. told is true while the bus has one, this process's or an
	// earlier one's.
	said *corev1.PodStatus
	told bool
}

// merger makes the pods' merged statuses of what the daemon knows, and says what has changed of them.
type merger struct{ *state }

// setSaid takes in what an earlier process of this daemon has published.
func setSaid(s *state, uid string, m topic.Merged) {
	if p := s.pod(uid); p.merged.said == nil {
		p.merged.status, p.merged.told = &m.Status, true
	}
}

// merge brings the merged status of a pod that has an update and a patch up to date, and returns it.
func (m merger) merge(p *pod, now time.Time) *corev1.PodStatus {
	of := &p.merged
	if !of.stale && of.status != nil {
		return of.status
	}
	base, last := m.base(p), of.status
	status := Merge(*p.patch, *p.update, p.probes, *base, now)
	if last != nil {
		keepTimes(status.Conditions, base.Conditions, last.Conditions)
	}
	of.stale = false
	switch {
	case equality.Semantic.DeepEqual(status, *base):
		of.status = base // one copy of what rests
	case last == nil || !equality.Semantic.DeepEqual(status, *last):
		of.status = &status
	}
	return of.status
}

// base is the status that the pod's is merged with: the API server's copy where that is known for sure, else what was
// merged last, else what podsync's watch has told.
func (m merger) base(p *pod) *corev1.PodStatus {
	has := m.copyOf(p)
	for _, status := range []*corev1.PodStatus{has.known(), p.merged.status, has.status} {
		if status != nil {
			return status
		}
	}
	return &corev1.PodStatus{}
}

// copyOf is what is known of the API object whose status is the pod's: its own, or its mirror pod's.
func (m merger) copyOf(p *pod) *served {
	if !p.update.Static() {
		return &p.served
	}
	if m := m.mirrorOf(p.update.Pod); m != nil && m.usable(p.update.Pod) {
		return &m.served
	}
	return &served{}
}

// keepTimes gives conditions that the API server doesn't have yet the time at which they were first merged: a write
// that is tried again makes no news of them.
func keepTimes(conditions, base, last []corev1.PodCondition) {
	for i := range conditions {
		c := &conditions[i]
		if has := condition(base, c.Type); has != nil && has.Status == c.Status {
			continue
		}
		if had := condition(last, c.Type); had != nil && had.Status == c.Status {
			c.LastTransitionTime = had.LastTransitionTime
		}
	}
}

// publisher is the writer of pod.status.
type publisher interface {
	Set(uid string, m topic.Merged) error
	Delete(uid string) error
}

// say publishes the merged statuses that have changed, and takes back those of pods that have gone. An error is one of
// encoding.
func (m merger) say(to publisher, now time.Time) (errs []error) {
	for uid := range m.unsaid {
		if err := m.sayOne(uid, to, now); err != nil {
			errs = append(errs, err)
		}
	}
	clear(m.unsaid)
	return errs
}

func (m merger) sayOne(uid string, to publisher, now time.Time) error {
	p := m.pods[uid]
	if p == nil {
		return nil
	}
	of := &p.merged
	if p.update == nil || p.patch == nil {
		told := of.told
		*of = merged{}
		m.forget(uid)
		if told {
			return to.Delete(uid)
		}
		return nil
	}
	status := m.merge(p, now)
	if of.said == status || of.said != nil && equality.Semantic.DeepEqual(*of.said, *status) {
		of.said = status
		return nil
	}
	of.said, of.told = status, true
	said := topic.Merged{Ref: topic.RefOf(p.update.Pod), Status: *status}
	if v := p.served.version; v > 0 {
		said.ResourceVersion = strconv.FormatUint(v, 10)
	}
	return to.Set(uid, said)
}
