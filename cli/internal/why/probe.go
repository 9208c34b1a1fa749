package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// probeCauses are the probes that keep a running container from being ready.
func (v view) probeCauses(what string, c *corev1.Container, s *corev1.ContainerStatus) []Cause {
	for _, p := range []probing{
		{v, what, c, s, topic.ProbeStartup, c.StartupProbe},
		{v, what, c, s, topic.ProbeLiveness, c.LivenessProbe},
		{v, what, c, s, topic.ProbeReadiness, c.ReadinessProbe},
	} {
		if p.probe == nil {
			continue
		}
		result, ok := v.Probes[topic.ProbeKey{UID: v.row.UID, Container: c.Name, Kind: p.kind}.String()]
		_, id, _ := strings.Cut(s.ContainerID, "://")
		switch ok = ok && result.ContainerID == id; {
		case ok && !result.Success:
			return []Cause{p.fails(result)}
		case !ok && p.kind != topic.ProbeLiveness:
			return []Cause{p.undecided()}
		}
	}
	return nil
}

// probing is a probe of a running container.
type probing struct {
	view
	what  string
	c     *corev1.Container
	s     *corev1.ContainerStatus
	kind  string
	probe *corev1.Probe
}

func (p probing) fails(result topic.Probe) Cause {
	// The result is that of the first failure; the reason may have changed since.
	said := cmp.Or(probeOutput(p.view, p.c.Name, p.kind, result.Since, p.now), strings.TrimSpace(result.Message))
	f := diagnose.Probe(said, p.names(p.c))
	lasted := words.Age(p.now.Sub(result.Since))
	cause := Cause{
		Kind: p.kind + "-" + f.Kind,
		Sentence: fmt.Sprintf("%s isn't ready, because its %s probe%s has failed for %s: %s", p.what, p.kind,
			inBrackets(p.probe), lasted, f.Why),
		What: p.what,
		Problem: fmt.Sprintf("its %s probe fails for %s: %s", p.kind, lasted,
			cmp.Or(said, "without a message")),
		Waits: "the probe to succeed, " + p.rhythm(), Advice: p.logs(p.c.Name, ""),
	}
	if p.kind != topic.ProbeReadiness {
		cause.Sentence = fmt.Sprintf("%s is being restarted, because its %s probe%s failed: %s", p.what, p.kind,
			inBrackets(p.probe), f.Why)
		cause.Waits = "the container to end"
		if run, ok := p.hookUnderWay(stepPreStop, p.c.Name); ok {
			cause.Waits = fmt.Sprintf("its preStop hook%s, which has run for %s, and then the container to end",
				hookInBrackets(p.preStop(p.c.Name)), words.Age(p.now.Sub(run.At)))
		}
	}
	return cause
}

func (p probing) undecided() Cause {
	started := p.s.State.Running.StartedAt.Time
	ran, last := words.Age(p.now.Sub(started)), p.lastRun(p.c.Name)
	cause := Cause{
		Kind: p.kind + "-probe-undecided",
		Sentence: fmt.Sprintf("%s isn't ready, because its %s probe%s has not succeeded in the %s since it started", p.what,
			p.kind, inBrackets(p.probe), ran),
		What:    p.what,
		Problem: fmt.Sprintf("runs for %s; its %s probe hasn't decided yet", ran, p.kind),
		Waits:   "the probe to succeed, " + p.rhythm(), Advice: p.logs(p.c.Name, ""),
	}
	if last != "" {
		cause.Problem += "; " + last
		cause.Sentence += ": " + diagnose.Probe(saidBy(last), p.names(p.c)).Why
	}
	first := started.Add(seconds(p.probe.InitialDelaySeconds))
	switch {
	case p.now.Before(first):
		cause.Kind = p.kind + "-probe-delayed"
		cause.Sentence = fmt.Sprintf("%s isn't ready yet: its %s probe%s first runs %d s after its start", p.what, p.kind,
			inBrackets(p.probe), p.probe.InitialDelaySeconds)
		cause.Waits, cause.Until, cause.Advice = "the probe's initialDelaySeconds", first, ""
	case p.kind == topic.ProbeStartup:
		cause.Waits += "; otherwise the container is restarted"
		most := cmp.Or(p.probe.FailureThreshold, 3) * cmp.Or(p.probe.PeriodSeconds, 10)
		if end := first.Add(seconds(most)); end.After(p.now) {
			cause.Until = end
		}
	}
	return cause
}

// rhythm is how often the probe runs, and how often it must succeed.
func (p probing) rhythm() string {
	text := fmt.Sprintf("which runs every %d s", cmp.Or(p.probe.PeriodSeconds, 10))
	if p.probe.SuccessThreshold > 1 {
		text += fmt.Sprintf(" and must succeed %d times in a row", p.probe.SuccessThreshold)
	}
	return text
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// saidBy is the probe's own output in the message of its Event.
func saidBy(message string) string {
	for _, lead := range []string{"probe failed: ", "unknown state: "} {
		if _, said, ok := strings.Cut(message, lead); ok {
			return said
		}
	}
	return ""
}

// probeOutput is what the Event of the container's last failed probe of that kind said in a time; empty if there is
// none.
func probeOutput(v view, container, kind string, from, until time.Time) string {
	lead := strings.ToUpper(kind[:1]) + kind[1:] + " probe failed: "
	for _, e := range slices.Backward(v.Events) {
		if about(e, v.row.UID, container) && e.Reason == "Unhealthy" && strings.HasPrefix(e.Message, lead) &&
			!e.At.Before(from) && e.At.Before(until) {
			return strings.TrimSpace(strings.TrimPrefix(e.Message, lead))
		}
	}
	return ""
}

// about reports whether an Event is about a container of the pod.
func about(e topic.Event, uid, container string) bool {
	return e.UID == uid && strings.HasSuffix(e.FieldPath, "{"+container+"}")
}

// lastRun is what the Event of the container's last failed probe said.
func (v view) lastRun(container string) string {
	for _, e := range slices.Backward(v.Events) {
		if about(e, v.row.UID, container) && e.Reason == "Unhealthy" {
			return strings.TrimSpace(e.Message)
		}
	}
	return ""
}
