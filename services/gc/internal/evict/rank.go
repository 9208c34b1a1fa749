package evict

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus/topic"
)

// Candidate is a pod that may be evicted.
type Candidate struct {
	Pod *corev1.Pod
	// Static pods come from a manifest; they aren't admitted again after an eviction, so they are never evicted.
	Static bool
	// Stats is nil where nothing is known of the pod's usage.
	Stats *statsv1alpha1.PodStats
	// Runs is true where the runtime has something of the pod that runs. What doesn't run and has no figures uses
	// nothing.
	Runs bool
}

// Critical reports whether the pod is never evicted.
func (c Candidate) Critical() bool {
	return c.Static || c.Pod.Spec.Priority != nil && *c.Pod.Spec.Priority >= topic.SystemCritical
}

// Ranked is a candidate with what its place follows from.
type Ranked struct {
	Candidate
	// Known is true where the figures are of the shortage; Choose sets it.
	Known bool
	// Exceeds is true where the pod uses more than it requests. It isn't asked of process IDs.
	Exceeds  bool
	Priority int32
	// Usage and Above are what it uses, and uses above its request.
	Usage, Above int64
}

// Rank sorts the pods for the signal: who is evicted first comes first. Those that use more than they request come
// before the others; then the lower priority counts, then the usage above the request. A pod without figures comes
// last; Choose knows whether it may.
func Rank(s Signal, l Layout, pods []Candidate) []Ranked {
	ranked := make([]Ranked, 0, len(pods))
	for _, c := range pods {
		r := Ranked{Candidate: c}
		if p := c.Pod.Spec.Priority; p != nil {
			r.Priority = *p
		}
		if c.Stats != nil {
			r.measure(s, l)
		}
		ranked = append(ranked, r)
	}
	slices.SortStableFunc(ranked, func(a, b Ranked) int {
		return cmp.Or(
			before(a.Stats != nil, b.Stats != nil), before(a.Exceeds, b.Exceeds),
			cmp.Compare(a.Priority, b.Priority), cmp.Compare(b.Above, a.Above),
			cmp.Compare(a.Pod.Namespace, b.Pod.Namespace), cmp.Compare(a.Pod.Name, b.Pod.Name),
		)
	})
	return ranked
}

func (r *Ranked) measure(s Signal, l Layout) {
	r.Usage = usage(s, l, r.Pod, r.Stats)
	r.Above = r.Usage
	switch name := s.Resource(); name {
	case pids:
	case inodes:
		// Inodes can't be requested: a pod that uses any uses more than it requests.
		r.Exceeds = r.Usage > 0
	default:
		r.Above -= request(r.Pod, name).Value()
		r.Exceeds = r.Above > 0
	}
}

// Why explains an eviction with the figures that decided it. place is how many critical pods came before it.
func (r Ranked) Why(t Threshold, o Observation, place int) string {
	q := t.Signal.quantity
	text := fmt.Sprintf("%s: %s available of %s; ", t, q(o.Available), q(o.Capacity))
	switch figures := fmt.Sprintf("%s, %s more than it requests, priority %d", q(r.Usage), q(r.Above), r.Priority); {
	case r.Known:
		text += "it uses " + figures
	case r.Usage > 0:
		text += "by incomplete or older figures it uses " + figures
	default:
		text += fmt.Sprintf("nothing is known of its usage, priority %d", r.Priority)
	}
	if place > 0 {
		text += fmt.Sprintf("; %d critical pods come before it", place)
	}
	return text
}

// Reclaim is what may be removed before anybody is evicted.
type Reclaim struct{ Containers, Images bool }

// Reclaims is what takes space on the signal's filesystem and is of no use.
func Reclaims(s Signal, l Layout) Reclaim {
	switch {
	case !s.Disk():
		return Reclaim{}
	case !l.ImageFS:
		return Reclaim{Containers: true, Images: true}
	case l.ContainerFS:
		return Reclaim{Containers: !s.images(), Images: s.images()}
	case s.node():
		// The logs of pods that have ended, also of those that were evicted for them. The kubelet deletes these anyway.
		return Reclaim{Containers: true}
	default:
		return Reclaim{Containers: true, Images: true}
	}
}
