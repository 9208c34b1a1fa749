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

// Moment is something that happened to the pod.
type Moment struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	// Times it happened in the same words, the last one at Last.
	Times int       `json:"times"`
	Last  time.Time `json:"last"`
	Bad   bool      `json:"bad,omitempty"`
	// again is true of what is told once however often it happens.
	again bool
}

// timeline is the pod's steps and the Events that say more, ordered by when they began.
func timeline(w Snapshot, uid string) []Moment {
	var moments []Moment
	add := func(m Moment) {
		for i := range moments {
			if m.again && moments[i].What == m.What {
				moments[i].Times++
				moments[i].Last = m.At
				return
			}
		}
		m.Times, m.Last = 1, m.At
		moments = append(moments, m)
	}
	var failures []string
	for _, s := range w.Steps {
		switch {
		case s.UID != uid || s.Phase == topic.StepBegin:
		case s.Error != "":
			failures = append(failures, s.Error)
			add(Moment{At: s.At.Add(-s.Duration), What: stepName(s) + " failed: " + s.Error, Bad: true, again: true})
		default:
			add(Moment{At: s.At.Add(-s.Duration), What: stepName(s) + ", " + words.Brief(s.Duration)})
		}
	}
	for _, e := range w.Events {
		if e.UID != uid || e.Type != corev1.EventTypeWarning && e.Reason != "Killing" || repeats(e, failures) {
			continue
		}
		add(Moment{
			At: e.At, What: fmt.Sprintf("Event %s: %s", e.Reason, strings.TrimSpace(e.Message)),
			Bad: e.Type == corev1.EventTypeWarning, again: true,
		})
	}
	slices.SortStableFunc(moments, func(a, b Moment) int { return a.At.Compare(b.At) })
	return moments
}

// repeats reports whether the Event says no more than the failure of a step does, or the waiting reason that follows
// from it.
func repeats(e topic.Event, failures []string) bool {
	text := strings.TrimSpace(e.Message)
	switch e.Reason {
	case "Failed":
		rest, short := strings.CutPrefix(text, "Error: ")
		if short && len(failures) > 0 && !strings.Contains(rest, " ") {
			return true // such as Error: ErrImagePull
		}
		text = rest
	case "FailedCreatePodSandBox":
	default:
		return false
	}
	return slices.ContainsFunc(failures, func(f string) bool {
		return strings.Contains(f, text) || commonEnd(f, text) >= max(distinct, len(text)/2)
	})
}

// distinct is how many bytes two texts must have in common so that the second need not be read again.
const distinct = 40

// commonEnd is how many bytes at the end of the texts are the same.
func commonEnd(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}

// shownOnce shortens texts whose end has been shown before.
type shownOnce struct{ before []string }

// text is what to show of a text; it is remembered.
func (s *shownOnce) text(text string) string {
	most := 0
	for _, b := range s.before {
		most = max(most, commonEnd(text, b))
	}
	s.before = append(s.before, text)
	cut := len(text) - most
	if cut > 0 && !strings.HasSuffix(text[:cut], ": ") {
		// Not in the middle of a word, and better between two parts of a nested error.
		at, gap := strings.Index(text[cut:], ": "), 2
		if at < 0 || at > longPart {
			at, gap = strings.IndexByte(text[cut:], ' '), 1
		}
		if at < 0 {
			return text
		}
		cut += at + gap
	}
	if len(text)-cut < distinct {
		return text
	}
	return text[:cut] + "[as above]"
}

// longPart is how far the next part of a nested error may be, in bytes.
const longPart = 60
