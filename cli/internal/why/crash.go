package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// startError is the reason of a container that ended before its program began.
const startError = "StartError"

// crash is a container that keeps ending.
type crash struct {
	view
	what     string
	c        *corev1.Container
	last     *corev1.ContainerStateTerminated
	restarts int32
}

// cause says why it ended the last time; problem is what was reported.
func (k crash) cause(problem string) Cause {
	cause := Cause{What: k.what, Problem: problem, Waits: "its next start", Until: k.nextStart(problem)}
	started := fmt.Sprintf("(started %s, last ended %s ago)", words.Plural(int(k.restarts)+1, "time"),
		words.Age(k.now.Sub(k.last.FinishedAt.Time)))
	waits, until := cause.Waits, cause.Until
	switch kill, killed := k.killedByProbe(); {
	case k.last.Reason == startError || k.last.Reason == "ContainerCannotRun":
		cause = cause.found(k.what+" can't start: ", diagnose.Start(k.last.Message, k.names(k.c)))
	case killed:
		cause = k.probeCrash(cause, kill, started)
	case k.hookKilled():
		cause = k.hookFailed(cause, k.c, k.hookText())
	case k.last.Reason == "OOMKilled":
		cause = k.outOfMemory(cause, started)
	case k.last.ExitCode == 0:
		cause.Kind = "crash-completes"
		cause.Sentence = fmt.Sprintf("%s ends by itself with exit code 0, and restartPolicy %s starts it again %s", k.what,
			k.pod.Spec.RestartPolicy, started)
		cause.Advice = "let its program run on, or make it a Job; what it said: " + k.logs(k.c.Name, " --previous")
	default:
		k.ownExit(&cause, started)
	}
	cause.Waits, cause.Until = waits, until
	return cause
}

// ownExit is a container that ended with a code of its own.
func (k crash) ownExit(cause *Cause, started string) {
	cause.Kind, cause.Advice = "crash", k.logs(k.c.Name, " --previous")
	cause.Sentence = fmt.Sprintf("%s keeps ending with exit code %d", k.what, k.last.ExitCode)
	if meaning := diagnose.Exit(k.last.ExitCode); meaning != "" {
		cause.Kind = fmt.Sprintf("crash-exit-%d", k.last.ExitCode)
		cause.Sentence += ", which means that " + meaning
	}
	// The runtime's last word before the program would have begun is in the container's log.
	if f := diagnose.Start(k.last.Message, k.names(k.c)); k.last.ExitCode == 255 && (f.Kind == "command-other-machine" ||
		f.Kind == "interpreter-missing") {
		*cause = cause.found(k.what+" can't start: ", f)
		cause.Sentence += " " + started
		return
	}
	switch said := strings.TrimSpace(k.last.Message); {
	case k.last.Reason == "ContainerStatusUnknown":
		cause.Kind, cause.Sentence = "crash-unknown", k.what+" is lost: the runtime doesn't know what became of it"
	case said != "":
		cause.Sentence += ": " + diagnose.Innermost(said)
	}
	cause.Sentence += " " + started
}

func (k crash) outOfMemory(cause Cause, started string) Cause {
	cause.Kind = "crash-out-of-memory"
	limit := k.c.Resources.Limits.Memory()
	if limit.IsZero() {
		cause.Sentence = fmt.Sprintf("%s is killed for lack of memory, without a limit of its own: the pod's limit, or the "+
			"node's memory, is used up %s", k.what, started)
		cause.Advice = "give it resources.requests.memory, and see who uses the memory: kubelot why node"
		return cause
	}
	cause.Sentence = fmt.Sprintf("%s needs more memory than its limit of %s %s", k.what, limit, started)
	cause.Advice = fmt.Sprintf("raise resources.limits.memory of container %s, or let it use less", k.c.Name)
	return cause
}

// delayIn finds the length of the back-off in the waiting message.
const delayIn = `back-off (\S+) restarting`

// nextStart is when the back-off ends; zero if that isn't known or is over.
func (k crash) nextStart(problem string) time.Time {
	m := regexp.MustCompile(delayIn).FindStringSubmatch(problem)
	if m == nil {
		return time.Time{}
	}
	delay, err := time.ParseDuration(m[1])
	if end := k.last.FinishedAt.Add(delay); err == nil && end.After(k.now) {
		return end
	}
	return time.Time{}
}

// kill is what a failed probe has done.
type kill struct {
	kind   string // of the probe
	output string
	since  time.Time // of the first time
	times  int
}

// slack covers that times in a status have whole seconds.
const slack = 2 * time.Second

// killedByProbe finds the probe for which the container's last run was ended.
func (k crash) killedByProbe() (kill, bool) {
	var found kill
	for _, e := range k.Events {
		if !about(e, k.row.UID, k.c.Name) || e.Reason != "Killing" {
			continue
		}
		kind := killer(e.Message)
		switch {
		case kind == "":
		case found.kind != kind:
			found = kill{kind: kind, since: e.At, times: 1}
		default:
			found.times++
		}
		if !k.duringLastRun(e.At) {
			continue
		}
		if kind == "" {
			return kill{}, false // it was ended for another reason
		}
		found.output = probeOutput(k.view, k.c.Name, kind, time.Time{}, e.At.Add(slack))
		return found, true
	}
	for _, kind := range []string{topic.ProbeLiveness, topic.ProbeStartup} {
		_, id, _ := strings.Cut(k.last.ContainerID, "://")
		result, ok := k.Probes[topic.ProbeKey{UID: k.row.UID, Container: k.c.Name, Kind: kind}.String()]
		if ok && !result.Success && id != "" && result.ContainerID == id {
			return kill{kind: kind, output: result.Message, since: result.Since, times: 1}, true
		}
	}
	return kill{}, false
}

func (k crash) duringLastRun(at time.Time) bool {
	return at.After(k.last.StartedAt.Add(-slack)) && at.Before(k.last.FinishedAt.Add(slack))
}

// killer is the kind of the probe that a Killing Event names.
func killer(message string) string {
	for _, kind := range []string{topic.ProbeLiveness, topic.ProbeStartup} {
		if strings.Contains(message, "failed "+kind+" probe") {
			return kind
		}
	}
	return ""
}

func (k crash) probeCrash(cause Cause, by kill, started string) Cause {
	spec := k.c.LivenessProbe
	if by.kind == topic.ProbeStartup {
		spec = k.c.StartupProbe
	}
	f := diagnose.Probe(by.output, k.names(k.c))
	cause.Kind = "crash-" + by.kind + "-probe"
	cause.Sentence = fmt.Sprintf("%s is restarted because its %s probe%s fails: %s %s", k.what, by.kind, inBrackets(spec),
		f.Why, started)
	cause.Problem += fmt.Sprintf("; its %s probe failed %s in the last %s", by.kind, words.Plural(by.times, "time"),
		words.Age(k.now.Sub(by.since)))
	if by.output != "" {
		cause.Problem += ", the last output: " + by.output
	}
	cause.Advice = fmt.Sprintf("%s; if it only needs more time: kubectl edit, %sProbe.failureThreshold and timeoutSeconds",
		k.logs(k.c.Name, " --previous"), by.kind)
	return cause
}

// hookKilled reports whether the container's last run was ended because its postStart hook failed.
func (k crash) hookKilled() bool {
	return slices.ContainsFunc(k.Events, func(e topic.Event) bool {
		return about(e, k.row.UID, k.c.Name) && e.Reason == "FailedPostStartHook" && k.duringLastRun(e.At)
	})
}

// hookText is what the last failure of the hook said.
func (k crash) hookText() string {
	for _, f := range k.steps.failing {
		if f.Name == "start container" && f.Container == k.c.Name {
			return f.Error
		}
	}
	return ""
}
