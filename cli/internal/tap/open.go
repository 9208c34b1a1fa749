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

// openLines are the steps that the filter lets through and that haven't ended, a line each.
func (v *view) openLines(now time.Time) []string {
	if v.format.Style == JSON || v.format.Style == Short || !v.filter.matchesTopic(topic.PodStep.Name()) {
		return nil
	}
	var lines []string
	for _, step := range v.open {
		took := now.Sub(step.At)
		if !v.filter.matchesPod(step.Ref, v.labels[step.UID]) || took < v.filter.SlowerThan || v.filter.Errors {
			continue
		}
		what := strings.TrimSpace(step.Name + " " + step.Container)
		lines = append(lines, words.OneLine(fmt.Sprintf("still open: %s  %s, for %s", podName(step.Ref), what,
			words.Brief(max(0, took)))))
	}
	return lines
}
