package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// longStep is how long a step must have run to be shown.
const longStep = time.Second

// steps are the steps of one pod's worker that are under way, and those that failed when last tried.
type steps struct {
	open    []topic.Step
	failing []failing
}

// failing is a step that hasn't succeeded since its first failure.
type failing struct {
	topic.Step
	times int
}

func stepsOf(history []topic.Step, uid string) steps {
	var s steps
	same := func(step topic.Step) func(topic.Step) bool {
		return func(o topic.Step) bool { return o.Name == step.Name && o.Container == step.Container }
	}
	for _, step := range history {
		if step.UID != uid {
			continue
		}
		s.open = slices.DeleteFunc(s.open, same(step))
		if step.Phase == topic.StepBegin {
			s.open = append(s.open, step)
			continue
		}
		at := slices.IndexFunc(s.failing, func(f failing) bool { return same(step)(f.Step) })
		switch {
		case step.Error == "" && at >= 0:
			s.failing = slices.Delete(s.failing, at, at+1)
		case step.Error == "":
		case at >= 0:
			s.failing[at] = failing{step, s.failing[at].times + 1}
		default:
			s.failing = append(s.failing, failing{step, 1})
		}
	}
	return s
}

// stepCauses are the steps that fail or take long, without those that another cause covers.
func (v view) stepCauses(told []Cause) []Cause {
	var causes []Cause
	for _, f := range v.steps.failing {
		if slices.ContainsFunc(told, func(c Cause) bool {
			return f.Container != "" && strings.HasSuffix(c.What, " "+f.Container) || strings.Contains(c.Problem, f.Error)
		}) {
			continue
		}
		causes = append(causes, Cause{
			What: stepName(f.Step),
			Problem: fmt.Sprintf("failed %s, last %s ago: %s", words.Plural(f.times, "time"),
				words.Age(v.now.Sub(f.At)), f.Error),
			Advice: "it is retried automatically",
		})
	}
	for _, s := range v.steps.open {
		// Steps that an earlier podsync began have no end.
		if s.At.Before(v.Healths["podsync"].Started) || v.now.Sub(s.At) < longStep {
			continue
		}
		causes = append(causes, Cause{What: stepName(s), Problem: "under way for " + words.Age(v.now.Sub(s.At))})
	}
	return causes
}

func stepName(s topic.Step) string {
	text := strings.TrimSpace(s.Name + " " + s.Container)
	if s.Image != "" {
		text += " (" + s.Image + ")"
	}
	return text
}

// Moment is something that happened to the pod.
type Moment struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	// Times it happened in the same words, the last one at Last.
	Times int       `json:"times"`
	Last  time.Time `json:"last"`
	Bad   bool      `json:"bad,omitempty"`
}

// timeline is the pod's steps and the Events that say more, ordered by when they began.
func timeline(w Snapshot, uid string) []Moment {
	var moments []Moment
	add := func(m Moment) {
		for i := range moments {
			if m.Bad && moments[i].What == m.What {
				moments[i].Times++
				moments[i].Last = m.At
				return
			}
		}
		m.Times, m.Last = 1, m.At
		moments = append(moments, m)
	}
	for _, s := range w.Steps {
		switch {
		case s.UID != uid || s.Phase == topic.StepBegin:
		case s.Error != "":
			add(Moment{At: s.At.Add(-s.Duration), What: stepName(s) + " failed: " + s.Error, Bad: true})
		default:
			add(Moment{At: s.At.Add(-s.Duration), What: stepName(s) + ", " + words.Brief(s.Duration)})
		}
	}
	for _, e := range w.Events {
		if e.UID == uid && (e.Type == corev1.EventTypeWarning || e.Reason == "Killing") {
			add(Moment{At: e.At, What: fmt.Sprintf("Event %s: %s", e.Reason, e.Message), Bad: e.Type == corev1.EventTypeWarning})
		}
	}
	slices.SortStableFunc(moments, func(a, b Moment) int { return a.At.Compare(b.At) })
	return moments
}
