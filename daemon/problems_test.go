package daemon

import (
	"errors"
	"testing"

	"kubelot.dev/bus/topic"
)

// stated is the last health that was stated.
type stated struct {
	state   topic.HealthState
	message string
}

func (s *stated) Set(state topic.HealthState, message string) { *s = stated{state, message} }

func TestProblems(t *testing.T) {
	var health stated
	p := NewProblems(&health, "lead: ")
	for _, step := range []struct {
		what  string
		err   error
		again bool
		want  stated
	}{
		{"disks", nil, false, stated{topic.Healthy, ""}},
		{"disks", errors.New("full"), false, stated{topic.Degraded, "lead: disks: full"}},
		{
			"disks", errors.Join(errors.New("full"), errors.New("slow")), true,
			stated{topic.Degraded, "lead: disks: full; slow"},
		},
		{"bus", errors.New("away"), false, stated{topic.Degraded, "lead: bus: away; disks: full; slow"}},
		{"disks", nil, false, stated{topic.Degraded, "lead: bus: away"}},
		{"bus", nil, false, stated{topic.Healthy, ""}},
	} {
		if again := p.Set(step.what, step.err); again != step.again || health != step.want {
			t.Errorf("%s, %v: again %v, health %v, want %v", step.what, step.err, again, health, step.want)
		}
	}
}
