package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

func (v view) initCauses(c *corev1.Container, s *corev1.ContainerStatus, sidecar bool) []Cause {
	what := "init container " + c.Name
	switch {
	case s == nil || s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 && !sidecar:
		return nil
	case s.State.Running != nil && !sidecar:
		ran := words.Age(v.now.Sub(s.State.Running.StartedAt.Time))
		return []Cause{{
			Kind:     "init-runs",
			Sentence: fmt.Sprintf("the pod isn't ready, because its %s has not ended: it has run for %s", what, ran),
			What:     what, Problem: "runs for " + ran + "; the containers after it start when it has succeeded",
			Waits: what + " to end with exit code 0", Advice: v.logs(c.Name, ""),
		}}
	}
	if sidecar {
		what = "sidecar " + c.Name
	}
	return v.containerCause(what, c, s)
}

func (v view) containerCause(what string, c *corev1.Container, s *corev1.ContainerStatus) []Cause {
	switch {
	case s.State.Waiting != nil:
		return v.waitingCause(what, c, s)
	case s.State.Running != nil:
		return v.probeCauses(what, c, s)
	case s.State.Terminated != nil && v.pod.Spec.RestartPolicy == corev1.RestartPolicyAlways:
		return []Cause{crash{v, what, c, s.State.Terminated, s.RestartCount}.cause(exit(s.State.Terminated))}
	case s.State.Terminated != nil:
		return outlived(v, what, s.State.Terminated)
	}
	return nil
}

// outlived is a container that has ended for good, while others of the pod run: such as a Job's, next to a proxy.
func outlived(v view, what string, t *corev1.ContainerStateTerminated) []Cause {
	var others []string
	for _, s := range v.status.Status.ContainerStatuses {
		if s.State.Running != nil {
			others = append(others, s.Name)
		}
	}
	if len(others) == 0 || t.ExitCode != 0 && v.pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
		return nil
	}
	list := strings.Join(others, ", ")
	return []Cause{{
		Kind: "others-run", What: what, Problem: exit(t),
		Sentence: fmt.Sprintf("%s has ended with exit code %d, and the pod goes on, because of what still runs in it: %s",
			what, t.ExitCode, list),
		Waits: "the end of " + list,
		Advice: "if it only serves the others, such as a proxy, make it a sidecar, which ends with them: an init container " +
			"with restartPolicy Always",
	}}
}

func (v view) waitingCause(what string, c *corev1.Container, s *corev1.ContainerStatus) []Cause {
	w := s.State.Waiting
	if w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
		return v.hookRuns(what, c) // any other thing that it waits for is a cause of its own
	}
	problem := strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	if t := s.LastTerminationState.Terminated; t != nil {
		problem += fmt.Sprintf("; started %s, it last %s, %s ago", words.Plural(int(s.RestartCount)+1, "time"), exit(t),
			words.Age(v.now.Sub(t.FinishedAt.Time)))
	}
	cause := Cause{What: what, Problem: problem}
	lead, n := what+" can't start: ", v.names(c)
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
		"RegistryUnavailable", "SignatureValidationFailed":
		pull := imageless{v, c}
		return []Cause{pull.cause(cause.found(lead, diagnose.Image(w.Reason, w.Message, pull.names(w.Message))))}
	case "CreateContainerConfigError":
		cause = cause.found(lead, diagnose.Config(w.Message, n))
	case "CreateContainerError", "RunContainerError":
		cause = cause.found(lead, diagnose.Start(w.Message, n))
	case "PostStartHookError":
		return []Cause{v.hookFailed(cause, c, w.Message)}
	case "CrashLoopBackOff":
		if t := s.LastTerminationState.Terminated; t != nil {
			return []Cause{crash{v, what, c, t, s.RestartCount}.cause(problem)}
		}
		cause.Kind, cause.Sentence, cause.Advice = "crash", what+" keeps ending", v.logs(c.Name, " --previous")
	default:
		cause.Kind, cause.Sentence = "waits", what+" waits: "+diagnose.Innermost(problem)
	}
	cause.Until = v.nextTry("start container", c.Name)
	return []Cause{cause}
}

// imageless is a container whose image can't be had.
type imageless struct {
	view
	c *corev1.Container
}

// names take the image of a volume for the container's own if the text is about it.
func (v imageless) names(text string) diagnose.Names {
	n := v.view.names(v.c)
	for i := range v.pod.Spec.Volumes {
		image := v.pod.Spec.Volumes[i].Image
		if image != nil && image.Reference != "" && strings.Contains(text, `"`+image.Reference+`"`) {
			n.Image = image.Reference
		}
	}
	return n
}

// cause adds to what was found when it is pulled again, and which pull secrets are missing.
func (v imageless) cause(cause Cause) Cause {
	cause.Until = v.nextPull()
	if cause.Kind != "registry-unauthorized" && cause.Kind != "image-denied" {
		return cause
	}
	for _, e := range slices.Backward(v.Events) {
		if e.UID != v.row.UID || e.Reason != "FailedToRetrieveImagePullSecret" {
			continue
		}
		_, rest, _ := strings.Cut(e.Message, "(")
		missing, _, _ := strings.Cut(rest, ")")
		first, _, _ := strings.Cut(missing, ",")
		cause.Kind = "pull-secret-missing"
		cause.Sentence += "; its imagePullSecrets name a Secret that doesn't exist: " + missing
		cause.Advice = fmt.Sprintf("create what is missing: kubectl create secret docker-registry %s -n %s "+
			"--docker-server=%s --docker-username=USER --docker-password=PASSWORD", first, v.pod.Namespace,
			diagnose.Registry(v.c.Image))
		break
	}
	return cause
}

// The pauses between pulls, and between the tries of other steps. Each failure doubles the pause.
const (
	firstPull, lastPull = 10 * time.Second, 5 * time.Minute
	firstTry, lastTry   = 500 * time.Millisecond, 10 * time.Second
)

// nextPull is when the container's image is pulled again; zero if that isn't known. A try during the pause fails too,
// and says so.
func (v imageless) nextPull() time.Time {
	var pulls int
	var last time.Time
	for _, s := range v.Steps {
		if s.UID != v.row.UID || s.Name != "ensure image" || s.Container != v.c.Name || s.Phase != topic.StepEnd {
			continue
		}
		switch {
		case s.Error == "":
			pulls = 0
		case !strings.HasPrefix(s.Error, "Back-off pulling image"):
			pulls, last = pulls+1, s.At
		}
	}
	return v.ahead(last, pulls, firstPull, lastPull)
}

// nextTry is when a step that fails is tried again; zero if that isn't known.
func (v view) nextTry(step, container string) time.Time {
	for _, f := range v.steps.failing {
		if f.Name == step && f.Container == container {
			return v.ahead(f.At, f.times, firstTry, lastTry)
		}
	}
	return time.Time{}
}

// ahead is the end of the pause after so many failures, the last of them at the time; zero if it is over.
func (v view) ahead(last time.Time, failures int, first, most time.Duration) time.Time {
	if failures == 0 {
		return time.Time{}
	}
	pause := first
	for range failures - 1 {
		pause = min(2*pause, most)
	}
	if end := last.Add(pause); end.After(v.now) {
		return end
	}
	return time.Time{}
}

func (v view) logs(container, flags string) string {
	return fmt.Sprintf("kubectl logs -n %s %s -c %s%s", v.pod.Namespace, v.pod.Name, container, flags)
}
