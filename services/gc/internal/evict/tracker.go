package evict

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// conditions are the node's conditions that thresholds bring about, the most urgent first.
var conditions = [...]corev1.NodeConditionType{
	corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
	corev1.NodePIDPressure,
}

// Pressure is what the thresholds say of the node.
type Pressure struct {
	// Under are the conditions that hold.
	Under map[corev1.NodeConditionType]bool
	// Relieved is since when no threshold of a condition that holds is met any more; missing while one is.
	Relieved map[corev1.NodeConditionType]time.Time
	// Message names the thresholds that are met, with their figures.
	Message string
}

// lostAfter is how long a threshold stays met without readings of its signal. A reading may fail, and the signal's
// subject may be gone, such as the limit on what pods may use.
const lostAfter = 10 * time.Second

// state is what is remembered of one threshold.
type state struct {
	threshold Threshold
	// since is when it was met first, without a break, read when it was found to be last.
	since, read time.Time
	// due is true from the moment pods must be evicted until the minimum reclaim is reached.
	due bool
	// text is the message with the figures of the moment when it was met. It doesn't follow each reading, or the message
	// would change each second.
	text string
}

// Tracker follows the thresholds over time.
type Tracker struct {
	states     []state
	transition time.Duration
	pressure   Pressure
}

// NewTracker follows the thresholds; a condition holds for the transition period after its last threshold is relieved.
func NewTracker(thresholds []Threshold, transition time.Duration) *Tracker {
	t := &Tracker{transition: transition, pressure: Pressure{
		Under: map[corev1.NodeConditionType]bool{}, Relieved: map[corev1.NodeConditionType]time.Time{},
	}}
	t.SetThresholds(thresholds)
	return t
}

// SetThresholds replaces the thresholds. What is remembered of those that stay is kept, even if their grace period or
// their minimum reclaim is another one.
func (t *Tracker) SetThresholds(thresholds []Threshold) {
	old := t.states
	t.states = make([]state, len(thresholds))
	for i, threshold := range thresholds {
		for _, s := range old {
			if s.threshold.String() == threshold.String() {
				t.states[i] = s
			}
		}
		t.states[i].threshold = threshold
	}
}

// SetTransition replaces the transition period, also for conditions that hold.
func (t *Tracker) SetTransition(transition time.Duration) { t.transition = transition }

// Restore sets the conditions that an earlier process has stated. A condition that held then goes on to hold for its
// transition period, from when it was relieved, or from now on where it was not.
func (t *Tracker) Restore(p Pressure, now time.Time) {
	for _, c := range conditions {
		if !p.Under[c] || t.pressure.Under[c] {
			continue
		}
		t.pressure.Under[c] = true
		t.pressure.Relieved[c] = now
		if at, ok := p.Relieved[c]; ok && at.Before(now) {
			t.pressure.Relieved[c] = now.Add(at.Sub(now)) // a clock that is set meanwhile changes nothing
		}
	}
}

// Thresholds are the thresholds that are followed.
func (t *Tracker) Thresholds() []Threshold {
	all := make([]Threshold, len(t.states))
	for i, s := range t.states {
		all[i] = s.threshold
	}
	return all
}

// Update takes new readings. due are the thresholds for which pods must be evicted, in the order in which to try.
func (t *Tracker) Update(obs Observations, now time.Time) (due []Due, p Pressure) {
	met := map[corev1.NodeConditionType]bool{}
	var messages []string
	for i := range t.states {
		s := &t.states[i]
		s.update(obs, now)
		if s.since.IsZero() {
			continue
		}
		met[s.threshold.Signal.Condition()] = true
		messages = append(messages, s.text)
		if _, known := obs[s.threshold.Signal]; s.due && known {
			due = append(due, Due{s.threshold, s.since})
		}
	}
	t.settle(met, now)
	t.pressure.Message = strings.Join(messages, "; ")
	return due, t.pressure.clone()
}

// update judges one threshold.
func (s *state) update(obs Observations, now time.Time) {
	o, known := obs[s.threshold.Signal]
	if !known && now.Sub(s.read) < lostAfter {
		return
	}
	if !known || !Met(s.threshold, o, s.due) {
		*s = state{threshold: s.threshold}
		return
	}
	before := *s
	s.read = now
	if s.since.IsZero() {
		s.since = now
	}
	s.due = s.due || now.Sub(s.since) >= s.threshold.Grace
	if before.since.IsZero() || s.due != before.due {
		s.text = s.message(o)
	}
}

// Met reports whether less is available than the threshold, or than the threshold and its minimum reclaim.
func Met(t Threshold, o Observation, reclaim bool) bool {
	return t.limit(o, reclaim).Cmp(*t.Signal.quantity(o.Available)) > 0
}

// limit is what must be available.
func (t Threshold) limit(o Observation, reclaim bool) *resource.Quantity {
	limit := t.Value.of(t.Signal, o.Capacity)
	if reclaim && t.Reclaim != nil {
		limit.Add(*t.Reclaim.of(t.Signal, o.Capacity))
	}
	return limit
}

func (s *state) message(o Observation) string {
	signal := s.threshold.Signal
	limit := s.threshold.Value.of(signal, o.Capacity)
	text := fmt.Sprintf("%s is %s, %s threshold %s", signal, signal.quantity(o.Available), kind(s.threshold), limit)
	if !s.due {
		text += fmt.Sprintf(", grace period %s", s.threshold.Grace)
	}
	return text
}

func kind(t Threshold) string {
	if t.Hard {
		return "hard"
	}
	return "soft"
}

// settle brings the conditions up to date.
func (t *Tracker) settle(met map[corev1.NodeConditionType]bool, now time.Time) {
	for _, c := range conditions {
		switch at, relieved := t.pressure.Relieved[c]; {
		case met[c]:
			t.pressure.Under[c] = true
			delete(t.pressure.Relieved, c)
		case !t.pressure.Under[c]:
		case !relieved && t.transition > 0:
			t.pressure.Relieved[c] = now
		case !relieved || now.Sub(at) >= t.transition:
			delete(t.pressure.Under, c)
			delete(t.pressure.Relieved, c)
		}
	}
}

func (p Pressure) clone() Pressure {
	p.Under, p.Relieved = maps.Clone(p.Under), maps.Clone(p.Relieved)
	return p
}
