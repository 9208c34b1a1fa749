package daemon

import (
	"testing"

	"kubelot.dev/bus/topic"
)

// said is the health as it was last reported.
type said struct{ text string }

func (s *said) Set(state topic.HealthState, message string) { s.text = string(state) + " " + message }

func TestNoPartHidesAnothersTrouble(t *testing.T) {
	var whole said
	j := JoinHealth(&whole)
	node, lease := j.Part(), j.Part()
	for _, step := range []struct {
		part    HealthReporter
		state   topic.HealthState
		message string
		want    string
	}{
		{node, topic.Healthy, "standalone", "healthy standalone"},
		{lease, topic.Degraded, "no answer", "degraded no answer"},
		{node, topic.Healthy, "", "degraded no answer"},
		{node, topic.Degraded, "refused", "degraded refused; no answer"},
		{lease, topic.Healthy, "", "degraded refused"},
		{node, topic.Healthy, "", "healthy "},
	} {
		step.part.Set(step.state, step.message)
		if whole.text != step.want {
			t.Errorf("after %s %q: %q, want %q", step.state, step.message, whole.text, step.want)
		}
	}
}
