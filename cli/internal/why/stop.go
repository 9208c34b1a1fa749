package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon/podspec"
)

// grace is how long the pod may take to end.
func (v view) grace() string {
	switch deadline := v.update.Deadline; {
	case v.update.Lifecycle == topic.Terminated:
		return "no container runs any more"
	case deadline == nil:
		return "without a deadline"
	case v.now.Before(*deadline):
		return fmt.Sprintf("its grace period ends in %s", words.Age(deadline.Sub(v.now)))
	default:
		return fmt.Sprintf("its grace period ended %s ago", words.Age(v.now.Sub(*deadline)))
	}
}

// leaving is a pod that should end, or has ended.
type leaving struct{ view }

// stopping are the causes of a pod that should end.
func (v leaving) stopping() []Cause {
	if v.update.Lifecycle == topic.Terminated {
		causes := append(v.claimCauses(), v.volumeCauses(topic.VolumeUnmounted)...)
		return append(causes, v.stepCauses(causes)...)
	}
	var causes []Cause
	seen := map[string]bool{}
	for _, o := range v.Observations[v.row.UID].Containers {
		if !seen[o.Name] && o.State == topic.ContainerRunning {
			causes = append(causes, v.ending(o.Name))
		}
		seen[o.Name] = true
	}
	return append(causes, v.stepCauses(causes)...)
}

// ending is a container that should end and runs still.
func (v leaving) ending(name string) Cause {
	what := "container " + name
	i := slices.IndexFunc(v.steps.open, func(s topic.Step) bool { return s.Container == name && !v.forgotten(s) })
	if i < 0 {
		return Cause{
			Kind: "stop-waits", Sentence: what + " still runs", What: what, Problem: "still runs",
			Waits: "its turn: sidecars end after the other containers",
		}
	}
	step := v.steps.open[i]
	lasted := words.Age(v.now.Sub(step.At))
	cause := Cause{What: stepName(step), Problem: "under way for " + lasted}
	if d := v.update.Deadline; d != nil {
		cause.Until = *d
	}
	if d := v.update.Deadline; d != nil && v.now.Sub(*d) > lateStop {
		cause.Kind = "stop-late"
		cause.Sentence = fmt.Sprintf("%s still runs, although its grace period ended %s ago: the runtime doesn't stop it",
			what, words.Age(v.now.Sub(*d)))
		cause.Waits, cause.Until = "the runtime", time.Time{}
		cause.Advice = "journalctl -u containerd on this node; a process that waits for a disk (state D) can't be killed"
		return cause
	}
	return v.obeying(cause, what, step)
}

// lateStop is how long after the grace period the runtime may need to kill a container.
const lateStop = 10 * time.Second

// obeying is a container within its grace period.
func (v leaving) obeying(cause Cause, what string, step topic.Step) Cause {
	cause.Waits = "the container to end by itself; then it is killed"
	cause.Advice = fmt.Sprintf("kubectl delete pod %s -n %s --grace-period=1 ends it now", v.pod.Name, v.pod.Namespace)
	hook := v.preStop(step.Container)
	if run, ok := v.hookUnderWay(stepPreStop, step.Container); ok {
		return v.hookHolds(cause, what, hook, run)
	}
	ended, over := v.hookEnded(stepPreStop, step.Container)
	told := step.At
	if over && ended.At.After(told) {
		told = ended.At
	}
	lasted := words.Age(v.now.Sub(told))
	switch {
	case over && ended.Error != "", v.hookFailure(step):
		cause.Kind = "pre-stop-hook-fails"
		cause.Sentence = fmt.Sprintf("%s has not ended in %s: its preStop hook%s has failed%s, and its program ignores the "+
			"signal, or takes its time", what, lasted, hookInBrackets(hook), inParentheses(hookWords(ended.Error)))
	case over:
		cause.Kind = "stop-signal-ignored"
		cause.Sentence = fmt.Sprintf("%s has not ended in the %s since its preStop hook%s was over: its program ignores the "+
			"signal, or takes its time", what, lasted, hookInBrackets(hook))
	case hook == nil:
		cause.Kind = "stop-signal-ignored"
		cause.Sentence = fmt.Sprintf("%s has not ended in the %s since it was told to: its program ignores the signal, or "+
			"takes its time", what, lasted)
	case hook.Sleep != nil && step.At.Add(time.Duration(hook.Sleep.Seconds)*time.Second).After(v.now):
		cause.Kind, cause.Waits = "pre-stop-hook-runs", "the hook, and then the container, to end; then it is killed"
		cause.Sentence = fmt.Sprintf("%s has not ended, because its preStop hook%s has run for %s", what,
			hookInBrackets(hook), lasted)
	default:
		cause.Kind, cause.Waits = "pre-stop-hook-runs", "the hook, and then the container, to end; then it is killed"
		cause.Sentence = fmt.Sprintf("%s has not ended in %s: its preStop hook%s runs, or its program takes its time after "+
			"it", what, lasted, hookInBrackets(hook))
	}
	return cause
}

// hookHolds is a container whose preStop hook runs.
func (v leaving) hookHolds(cause Cause, what string, hook *corev1.LifecycleHandler, run topic.Step) Cause {
	cause.Kind, cause.What, cause.Problem = "pre-stop-hook-runs", stepName(run), v.since(run.At)
	cause.Sentence = fmt.Sprintf("%s has not ended, because its preStop hook%s has run for %s%s", what,
		hookInBrackets(hook), words.Age(v.now.Sub(run.At)), v.ofGrace())
	cause.Waits = "the hook, and then the container, to end; then it is killed"
	if hook != nil && hook.Sleep != nil {
		if left := run.At.Add(time.Duration(hook.Sleep.Seconds) * time.Second).Sub(v.now); left > 0 {
			cause.Waits = fmt.Sprintf("the hook to end in %s, and then the container; then it is killed", words.Age(left))
		}
	}
	return cause
}

func inParentheses(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

// preStop is the hook of a container; nil if it has none.
func (v view) preStop(container string) *corev1.LifecycleHandler {
	for c := range podspec.InitAndMain(&v.pod.Spec) {
		if c.Name == container && c.Lifecycle != nil {
			return c.Lifecycle.PreStop
		}
	}
	return nil
}

// hookFailure reports whether an Event says that the hook of the stop has failed.
func (v leaving) hookFailure(step topic.Step) bool {
	return slices.ContainsFunc(v.Events, func(e topic.Event) bool {
		return e.UID == v.row.UID && e.Reason == "FailedPreStopHook" && e.At.After(step.At) &&
			strings.HasSuffix(e.FieldPath, "{"+step.Container+"}")
	})
}

// kept is why a pod that is over on this node still exists.
func (v leaving) kept() []Cause {
	if finalizers := v.pod.Finalizers; len(finalizers) > 0 {
		list := strings.Join(finalizers, ", ")
		return []Cause{{
			Kind: "finalizers", Sentence: "it is over on this node, and finalizers keep its API object: " + list,
			What: "API server", Problem: "it is over on this node, and the pod's finalizers keep it: " + list,
			Waits: "their owners to remove them",
			Advice: fmt.Sprintf("the owner of each finalizer must remove it; if there is none any more: kubectl patch pod %s "+
				`-n %s --type=merge -p '{"metadata":{"finalizers":null}}'`, v.pod.Name, v.pod.Namespace),
		}}
	}
	cause := Cause{
		Kind: "delete-pending", Sentence: "it is over on this node, and its API object is not deleted yet",
		What: "API server", Problem: "it is over on this node, and not deleted yet", Waits: "the API server's answer",
		Advice: "see whether kubelot-status reaches the API server: kubelot doctor",
	}
	if h, ok := v.Healths["status"]; ok {
		if problem := health.Problem(h, v.now); problem != "" {
			cause.Kind = "delete-blocked"
			cause.Sentence = "it is over on this node, and kubelot can't delete its API object: " +
				diagnose.Innermost(cmp.Or(h.Message, problem))
			cause.Problem += "; the daemon status is " + problem
		}
	}
	return []Cause{cause}
}

// ended is why a pod has ended for good, unless it succeeded.
func (v leaving) ended() []Cause {
	status := v.status.Status
	if status.Phase == corev1.PodSucceeded {
		return nil
	}
	if f, ok := diagnose.End(status.Reason, status.Message, v.names(nil)); ok {
		lead := "this node has ended it: "
		if strings.HasPrefix(status.Message, "Pod was rejected") {
			lead = "this node has refused it: "
		}
		return []Cause{Cause{
			What: "pod", Problem: strings.TrimSpace(status.Reason + ": " + status.Message),
		}.found(lead, f)}
	}
	name, t := failure(status)
	if status.Phase != corev1.PodFailed || t == nil {
		return nil
	}
	cause := Cause{
		Kind: "failed", Sentence: fmt.Sprintf("it has failed: container %s ended with exit code %d", name, t.ExitCode),
		What: "container " + name, Problem: exit(t), Advice: v.logs(name, ""),
	}
	switch meaning := diagnose.Exit(t.ExitCode); {
	case t.Reason == "OOMKilled":
		cause.Kind = "failed-out-of-memory"
		cause.Sentence = "it has failed: container " + name + " needed more memory than it may have"
	case t.Reason == startError:
		return []Cause{cause.found("it has failed: container "+name+" couldn't start: ",
			diagnose.Start(t.Message, diagnose.Names{Namespace: v.pod.Namespace, Pod: v.pod.Name, Container: name}))}
	case t.Message != "":
		cause.Sentence += ": " + diagnose.Innermost(t.Message)
	case meaning != "":
		cause.Sentence += ", which means that " + meaning
	}
	return []Cause{cause}
}
