package tap

import (
	"testing"

	"kubelot.dev/bus/topic"
)

func TestDecision(t *testing.T) {
	pod := &topic.Ref{Namespace: "default", Name: "web"}
	for _, c := range []struct {
		d      topic.Decision
		want   string
		urgent bool
	}{
		{
			topic.Decision{Action: topic.ActionEvict, Object: "default/web", Pod: pod, Reason: "memory"},
			"evict pod default/web: memory", true,
		},
		{
			topic.Decision{Action: topic.ActionRemoveContainer, Object: "c1", Pod: pod, Reason: "old"},
			"remove container c1 of default/web: old", false,
		},
		{
			topic.Decision{Action: topic.ActionRemoveImage, Object: "app:1", Reason: "unused", Error: "busy"},
			"remove image app:1: unused; FAILED: busy", true,
		},
	} {
		if got, urgent := describeDecision("", c.d, nil); got != c.want || urgent != c.urgent {
			t.Errorf("%q, %v; want %q, %v", got, urgent, c.want, c.urgent)
		}
	}
}
