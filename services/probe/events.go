package probe

import (
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/probe/internal/check"
)

const (
	// retries is how often a probe that can't be run is tried before it is reported, retryPause the time between: that
	// of pleg to see that the container has ended.
	retries, retryPause = 3, 100 * time.Millisecond
	// The reasons of probes' Events; tools know them, and the sentences.
	reasonUnhealthy = "Unhealthy"
	reasonWarning   = "ProbeWarning"
)

// tell has an Event recorded of a run that failed or must be warned of.
func (t *tracker) tell(p *probe, result check.Result) {
	switch {
	case result.Warning:
		t.event(p, reasonWarning, fmt.Sprintf("%s probe warning: %s", title(p.kind), result.Output))
	case !result.Success:
		t.event(p, reasonUnhealthy, fmt.Sprintf("%s probe failed: %s", title(p.kind), result.Output))
	}
}

// failed plans the next try of a probe that could not be run. A runtime that is away is reported by the daemon's
// health.
func (t *tracker) failed(now time.Time, p *probe, err error) {
	var runtime check.RuntimeError
	away := errors.As(err, &runtime)
	if p.errors++; p.errors < retries && !away {
		p.due = now.Add(retryPause)
		return
	}
	p.errors = 0
	p.due = p.schedule.next(p.began, now)
	if !away {
		t.event(p, reasonUnhealthy, fmt.Sprintf("%s probe errored and resulted in unknown state: %v", title(p.kind), err))
	}
}

func (t *tracker) event(p *probe, reason, message string) {
	t.out.events = append(t.out.events, topic.Event{
		Kind: "Pod", Ref: p.ref, FieldPath: p.fieldPath, Type: corev1.EventTypeWarning, Reason: reason, Message: message,
	})
}

func title(kind string) string { return strings.ToUpper(kind[:1]) + kind[1:] }
