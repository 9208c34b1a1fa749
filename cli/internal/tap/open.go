package tap

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// openSteps are the steps of workers that have begun and not ended, in the order in which they were told.
type openSteps []topic.Step

// note learns from a message which steps begin and end.
func (o *openSteps) note(e entry) {
	if step, ok := stepOf(e); ok {
		o.drop(func(s topic.Step) bool {
			return s.UID == step.UID && s.Name == step.Name && s.Container == step.Container
		})
		if step.Phase == topic.StepBegin {
			*o = append(*o, step)
		}
		return
	}
	switch {
	case e.name == topic.PodUpdate.Name() && e.Tombstone():
		o.drop(func(s topic.Step) bool { return s.UID == e.key })
	case e.name == topic.Health.Name() && e.key == "podsync":
		var health topic.DaemonHealth
		// What isn't a health says nothing of a start. The steps of an earlier podsync have no end.
		_ = json.Unmarshal(e.Data, &health)
		o.drop(func(s topic.Step) bool { return s.At.Before(health.Started) })
	}
}

func (o *openSteps) drop(which func(topic.Step) bool) { *o = slices.DeleteFunc(*o, which) }

const (
	// remindEvery is how often it is looked for steps that are open.
	remindEvery = time.Second
	// firstReminder is how long a step must have been open to be told of while others go on. Each time it is told of
	// doubles the pause to the next one.
	firstReminder = 10 * time.Second
)

// reminders is for how long steps must be open to be told of again.
type reminders map[run]time.Duration

// run is one run of a step.
type run struct {
	uid, name, container string
	began                int64
}

func runOf(s topic.Step) run { return run{s.UID, s.Name, s.Container, s.At.UnixNano()} }

// due reports whether the step, which has been open for so long, is to be told of.
func (r reminders) due(step topic.Step, took time.Duration) bool {
	key := runOf(step)
	next := max(r[key], firstReminder)
	if took < next {
		r[key] = next
		return false
	}
	for next <= took {
		next *= 2
	}
	r[key] = next
	return true
}

// forget drops the steps that have ended.
func (r reminders) forget(open openSteps) {
	for key := range r {
		if !slices.ContainsFunc(open, func(s topic.Step) bool { return key == runOf(s) }) {
			delete(r, key)
		}
	}
}

// openLines are the steps that the filter lets through and that haven't ended, a line each; with reminders only those
// that are to be told of now.
func (v *view) openLines(now time.Time, told reminders) []string {
	if v.format.Style == JSON || v.format.Style == Short || !v.filter.matchesTopic(topic.PodStep.Name()) {
		return nil
	}
	if told != nil {
		told.forget(v.open)
	}
	var lines []string
	for _, step := range v.open {
		took := now.Sub(step.At)
		if !v.filter.matchesPod(step.Ref, v.labels[step.UID]) || took < v.filter.SlowerThan || v.filter.Errors {
			continue
		}
		if told != nil && !told.due(step, took) {
			continue
		}
		what := strings.TrimSpace(step.Name + " " + step.Container)
		lines = append(lines, words.OneLine(fmt.Sprintf("still open: %s  %s, for %s", podName(step.Ref), what,
			words.Brief(max(0, took)))))
	}
	return lines
}
