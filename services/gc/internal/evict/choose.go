package evict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Patience bounds how long figures are waited for before an eviction. After OldPatience no newer ones are waited for of
// pods that have figures from before the shortage.
const (
	Patience    = 20 * time.Second
	OldPatience = 10 * time.Second
)

// Due is a threshold for which pods must be evicted, and since when it has been met: each threshold has a shortage of
// its own.
type Due struct {
	Threshold
	Since time.Time
}

// Wait is the wait for the figures by which the next pod is chosen for a threshold.
type Wait struct {
	Due
	// Asked is when it began; zero while space is waited for that is being freed, and nobody has been asked.
	Asked time.Time
	// Answer is the last that came; nil where none did.
	Answer *statsv1alpha1.Summary
}

// Waits are the waits that have begun, by threshold.
type Waits map[string]*Wait

// For returns the wait for the threshold, and begins it where that hasn't been done since the shortage began.
func (w Waits) For(d Due, now time.Time) *Wait {
	if !w.Has(d) || w[d.String()].Asked.IsZero() {
		w[d.String()] = &Wait{Due: d, Asked: now}
	}
	return w[d.String()]
}

// ForSpace notes that the threshold waits for space that is being freed.
func (w Waits) ForSpace(d Due) { w[d.String()] = &Wait{Due: d} }

// Has reports whether the wait has begun, for figures or for space.
func (w Waits) Has(d Due) bool {
	begun := w[d.String()]
	return begun != nil && begun.Since.Equal(d.Since)
}

// NotBefore is from when on figures count. Of a shortage that lasts they may be older than the wait: a little, since
// counting costs much.
func (w Wait) NotBefore() time.Time {
	maxAge := time.Second
	if w.Signal.Disk() {
		maxAge = 2 * time.Second
	}
	if oldest := w.Asked.Add(-maxAge); w.Since.Before(oldest) {
		return oldest
	}
	return w.Since
}

// Question is what a choice follows from.
type Question struct {
	Wait
	Now         time.Time
	Observation Observation
	Layout      Layout
	// Pods have the figures of the wait's answer.
	Pods []Candidate
}

// Choice is an answer.
type Choice struct {
	Question
	// Order is who may be evicted now, and who then if that one can't be; empty while figures are waited for.
	Order []Ranked
	// Missing are the pods whose usage isn't known.
	Missing []Ranked
}

// Waits reports whether nobody is chosen before more figures have come.
func (c Choice) Waits() bool { return len(c.Order) == 0 && len(c.Missing) > 0 }

// Choose says who is evicted first. Those whose usage is known are ranked as ever, but nobody goes while figures are
// waited for by which another pod could come before. When the wait is over, of pods with equal claims the first is one
// that is known to use enough to end the shortage, then come those whose usage isn't known, and then those that are
// known to use too little: a pod that can't end the shortage doesn't go in place of one that may have made it.
func Choose(q Question) Choice {
	c := Choice{Question: q}
	waited := q.Now.Sub(q.Asked)
	var able, awaited []Ranked
	for _, r := range Rank(q.Signal, q.Layout, q.Pods) {
		r.Known = (q.Answer != nil || waited >= Patience) && measured(q.Signal, q.Layout, r.Candidate, q.NotBefore())
		if !r.Known && !r.Critical() {
			c.Missing = append(c.Missing, r)
			older := r.Stats != nil && measured(q.Signal, q.Layout, r.Candidate, time.Time{})
			if waited < OldPatience || waited < Patience && !older {
				awaited = append(awaited, r)
				continue
			}
		}
		able = append(able, r)
	}
	if len(c.Missing) > len(awaited) {
		q.sort(able)
	}
	first := slices.IndexFunc(able, func(r Ranked) bool {
		return slices.ContainsFunc(awaited, func(u Ranked) bool { return q.compareClaims(u, r) <= 0 })
	})
	if first >= 0 {
		able = able[:first]
	}
	if len(awaited) == 0 || slices.ContainsFunc(able, func(r Ranked) bool { return !r.Critical() }) {
		c.Order = able
	}
	return c
}

// sort puts the pods in order where the usage of some isn't known.
func (q Question) sort(pods []Ranked) {
	enough := q.limit(q.Observation, true).Value() - q.Observation.Available
	class := func(r Ranked) int {
		ends := r.Usage > 0 && r.Usage >= enough
		switch {
		case r.Known && ends:
			return 0
		case ends:
			return 1 // by its older figures
		case !r.Known && r.Usage == 0:
			return 2
		case !r.Known:
			return 3
		}
		return 4
	}
	name := q.Signal.Resource()
	slices.SortStableFunc(pods, func(a, b Ranked) int {
		order := cmp.Or(q.compareClaims(a, b), cmp.Compare(class(a), class(b)))
		if order != 0 || a.Known {
			return order
		}
		// Of those of which nothing else is known: what runs, who uses most by older figures, who asked for least, who
		// came last.
		wantA, wantB := request(a.Pod, name), request(b.Pod, name)
		return cmp.Or(before(a.Runs, b.Runs), cmp.Compare(b.Above, a.Above), wantA.Cmp(*wantB),
			b.Pod.CreationTimestamp.Compare(a.Pod.CreationTimestamp.Time))
	})
}

// compareClaims compares what comes before the usage in the ranking. A pod whose usage isn't known may use more than it
// requests.
func (q Question) compareClaims(a, b Ranked) int {
	exceeds := func(r Ranked) bool { return r.Exceeds || !r.Known && q.Signal != PIDAvailable }
	return cmp.Or(before(exceeds(a), exceeds(b)), cmp.Compare(a.Priority, b.Priority))
}

// Lacking says which figures the choice of the pod was made without; empty where it had all that it needed.
func (c Choice) Lacking(chosen Ranked) string {
	var names []string
	for _, r := range c.Missing {
		switch {
		case r.Pod.UID == chosen.Pod.UID:
			names = slices.Insert(names, 0, "the pod itself")
		case c.compareClaims(r, chosen) <= 0:
			names = append(names, r.Pod.Namespace+"/"+r.Pod.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	waited := c.Now.Sub(c.Asked).Round(time.Second)
	return fmt.Sprintf("Figures from after the shortage began were missing after %s: of %s. ", waited, few(names))
}

// Awaited says whose figures are waited for.
func (c Choice) Awaited() string {
	var names []string
	for _, r := range c.Missing {
		names = append(names, r.Pod.Namespace+"/"+r.Pod.Name)
	}
	return fmt.Sprintf("no pod is evicted before the usage of %s has been measured after the shortage began; "+
		"the wait ends at %s", few(names), c.Asked.Add(Patience).UTC().Format(time.TimeOnly))
}

// few names the first of the pods, and how many more there are.
func few(names []string) string {
	if more := len(names) - 3; more > 0 {
		names = append(names[:3:3], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
