package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// isHookError recognizes what podsync says of a postStart hook that failed: the step is that of the container's start.
func isHookError(text string) bool { return strings.Contains(text, "lifecycle hook (") }

// startFails reports whether the postStart hook of a container runs or has failed, though the container may count as
// running at this moment.
func (v view) startFails() bool {
	failed := slices.ContainsFunc(v.steps.failing, func(f failing) bool {
		return f.Name == "start container" && isHookError(f.Error)
	})
	return failed || slices.ContainsFunc(v.steps.open, func(s topic.Step) bool {
		hooks := containerOf(v.pod, s.Container).Lifecycle
		return s.Name == "start container" && hooks != nil && hooks.PostStart != nil && !v.forgotten(s)
	})
}

// hookRuns is the cause of a container whose postStart hook runs still: it counts as starting until that is over.
func (v view) hookRuns(what string, c *corev1.Container) []Cause {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	at := slices.IndexFunc(v.steps.open, func(s topic.Step) bool {
		return s.Name == "start container" && s.Container == c.Name && !v.forgotten(s)
	})
	runs := slices.ContainsFunc(v.Observations[v.row.UID].Containers, func(o topic.Container) bool {
		return o.Name == c.Name && o.State == topic.ContainerRunning
	})
	if at < 0 || !runs {
		return nil
	}
	begun := v.steps.open[at].At
	if hook, ok := v.hookUnderWay(stepPostStart, c.Name); ok {
		begun = hook.At // the step of the start includes what was before the hook
	}
	ran := words.Age(v.now.Sub(begun))
	return []Cause{{
		Kind: "post-start-hook-runs",
		Sentence: fmt.Sprintf("%s isn't ready, because its postStart hook%s has not ended in %s", what,
			hookInBrackets(c.Lifecycle.PostStart), ran),
		What: what, Problem: "its postStart hook runs for " + ran, Waits: "the postStart hook to end",
		Advice: v.logs(c.Name, "") + "; a hook should end soon, so what takes long belongs into the container's own program",
	}}
}

// hookFailed is the cause of a container that is stopped because its postStart hook fails; text is what the hook said.
func (v view) hookFailed(cause Cause, c *corev1.Container, text string) Cause {
	why := hookWords(text)
	var hook *corev1.LifecycleHandler
	if c.Lifecycle != nil {
		hook = c.Lifecycle.PostStart
	}
	cause.Kind = "post-start-hook-fails"
	cause.Sentence = fmt.Sprintf("%s is stopped after each start, because its postStart hook%s fails", cause.What,
		hookInBrackets(hook))
	if why != "" {
		cause.Sentence += ": " + why
	}
	if text != "" && !strings.Contains(cause.Problem, text) {
		cause.Problem += "; " + text
	}
	cause.Waits, cause.Until = "its next start", v.nextTry("start container", c.Name)
	cause.Advice = fmt.Sprintf("correct lifecycle.postStart of container %s in the spec; the container's own log: %s",
		c.Name, v.logs(c.Name, " --previous"))
	return cause
}

// hookWords are the hook's own words in what podsync says of it.
func hookWords(text string) string {
	if m := regexp.MustCompile(`(?s)exited with (\d+): (.*), message: "`).FindStringSubmatch(text); m != nil {
		said := strings.TrimSpace(m[2])
		if said == "" {
			said = "it says nothing"
		}
		return "exit code " + m[1] + ", " + said
	}
	_, why, ok := strings.Cut(text, " failed - error: ")
	if !ok {
		return text
	}
	why, _, _ = strings.Cut(why, `, message: "`)
	if strings.HasPrefix(text, "HTTP") {
		return diagnose.Probe(why, diagnose.Names{}).Why
	}
	return diagnose.Start(why, diagnose.Names{}).Why
}

// hookInBrackets says what the hook does.
func hookInBrackets(h *corev1.LifecycleHandler) string {
	switch {
	case h == nil:
		return ""
	case h.Exec != nil:
		return " (" + commandLine(h.Exec.Command) + ")"
	case h.HTTPGet != nil:
		return fmt.Sprintf(" (GET :%s%s)", h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.Sleep != nil:
		return fmt.Sprintf(" (sleep %d s)", h.Sleep.Seconds)
	}
	return ""
}

// inBrackets says what the probe does.
func inBrackets(p *corev1.Probe) string {
	switch {
	case p == nil:
		return ""
	case p.Exec != nil:
		return " (" + commandLine(p.Exec.Command) + ")"
	case p.HTTPGet != nil:
		return fmt.Sprintf(" (GET :%s%s)", p.HTTPGet.Port.String(), p.HTTPGet.Path)
	case p.TCPSocket != nil:
		return fmt.Sprintf(" (TCP :%s)", p.TCPSocket.Port.String())
	case p.GRPC != nil:
		return fmt.Sprintf(" (gRPC :%d)", p.GRPC.Port)
	}
	return ""
}

// longCommand is how much of a command a sentence shows, in characters.
const longCommand = 60

func commandLine(command []string) string { return words.Clip(strings.Join(command, " "), longCommand) }
