package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pulls"
	"kubelot.dev/cli/internal/why/diagnose"
	"kubelot.dev/cli/internal/words"
)

// longStep is how long a step must have run to be shown.
const longStep = time.Second

// steps are the steps of one pod's worker that are under way, and those that failed when last tried.
type steps struct {
	open    []topic.Step
	failing []failing
}

// ofStart are the steps of a pod's start and life. The others belong to its end too.
var ofStart = []string{"create sandbox", "ensure image", "start container", "resize pod"}

// failing is a step that hasn't succeeded since its first failure.
type failing struct {
	topic.Step
	times int
}

func stepsOf(history []topic.Step, uid string) steps {
	var s steps
	same := func(step topic.Step) func(topic.Step) bool {
		return func(o topic.Step) bool { return o.Name == step.Name && o.Container == step.Container }
	}
	for _, step := range history {
		if step.UID != uid {
			continue
		}
		s.open = slices.DeleteFunc(s.open, same(step))
		if step.Phase == topic.StepBegin {
			s.open = append(s.open, step)
			continue
		}
		at := slices.IndexFunc(s.failing, func(f failing) bool { return same(step)(f.Step) })
		switch {
		case step.Error == "" && at >= 0:
			s.failing = slices.Delete(s.failing, at, at+1)
		case step.Error == "":
		case at >= 0:
			s.failing[at] = failing{step, s.failing[at].times + 1}
		default:
			s.failing = append(s.failing, failing{step, 1})
		}
	}
	return s
}

// forgotten reports whether the step has no end because an earlier podsync began it.
func (v view) forgotten(s topic.Step) bool { return s.At.Before(v.Healths["podsync"].Started) }

// stepCauses are the steps that fail or take long, without those that another cause covers.
func (v view) stepCauses(told []Cause) []Cause {
	var causes []Cause
	covered := func(s topic.Step) bool {
		// A failed hook is part of a start that fails, or of a stop that goes on.
		if isHookStep(s.Name) && s.Phase == topic.StepEnd || v.holdsHook(s) {
			return true
		}
		return slices.ContainsFunc(told, func(c Cause) bool {
			return s.Container != "" && strings.HasSuffix(c.What, " "+s.Container) ||
				s.Error != "" && strings.Contains(c.Problem, s.Error)
		})
	}
	for _, f := range v.steps.failing {
		// What failed at the start of a pod that ends now is not tried again.
		if !covered(f.Step) && (v.update.Lifecycle == topic.Syncing || !slices.Contains(ofStart, f.Name)) {
			causes = append(causes, v.failingCause(f))
		}
	}
	for _, s := range v.steps.open {
		if !covered(s) && !v.forgotten(s) && v.now.Sub(s.At) >= longStep {
			causes = append(causes, v.slowCause(s))
		}
	}
	return causes
}

// failingCause is a step that fails.
func (v view) failingCause(f failing) Cause {
	cause := Cause{
		What: stepName(f.Step),
		Problem: fmt.Sprintf("failed %s, last %s ago: %s", words.Plural(f.times, "time"), words.Age(v.now.Sub(f.At)),
			f.Error),
	}
	n := v.names(nil)
	n.Container, n.Image = f.Container, f.Image
	switch f.Name {
	case "create sandbox":
		cause = cause.found("the pod can't start: ", diagnose.Sandbox(f.Error, n))
	case "ensure image":
		cause = cause.found("container "+f.Container+" can't start: ", diagnose.Pull(f.Error, n))
	case "start container":
		cause.What = "container " + f.Container
		if isHookError(f.Error) {
			return v.hookFailed(cause, containerOf(v.pod, f.Container), f.Error)
		}
		cause = cause.found("container "+f.Container+" can't start: ", diagnose.Start(f.Error, n))
	case "stop container", "stop sandbox", "remove container", "remove sandboxes", "release node resources":
		cause = cause.found("the pod can't end: ", diagnose.Sandbox(f.Error, n))
		cause.Kind = strings.ReplaceAll(f.Name, " ", "-") + "-fails"
	case "resize pod":
		cause = cause.found(notResized, diagnose.Resize(f.Error, n))
	default:
		cause.Kind = strings.ReplaceAll(f.Name, " ", "-") + "-fails"
		cause.Sentence = stepName(f.Step) + " fails: " + diagnose.Innermost(f.Error)
		cause.Waits, cause.Advice = "the next try to succeed", "it is retried automatically"
	}
	cause.Until = v.nextTry(f.Name, f.Container)
	return cause
}

// slowCause is a step that takes long.
func (v view) slowCause(s topic.Step) Cause {
	lasted := words.Age(v.now.Sub(s.At))
	cause := Cause{
		Kind: strings.ReplaceAll(s.Name, " ", "-") + "-slow", What: stepName(s), Problem: "under way for " + lasted,
		Waits:  "the container runtime",
		Advice: "if that lasts: crictl info and uptime on this node; then the runtime's log: journalctl -u containerd",
	}
	switch s.Name {
	case "ensure image":
		v.slowPull(&cause, s)
	case "create sandbox":
		cause.Sentence = "the pod can't start yet: its sandbox and its network have been in the making for " + lasted
		cause.Waits = "the runtime and the network plugin, or other pods' starts"
	case "start container":
		cause.Sentence = "container " + s.Container + " has been starting for " + lasted
	case stepPreStop:
		cause.Kind, cause.Problem = "pre-stop-hook-runs", v.since(s.At)
		cause.Sentence = fmt.Sprintf("container %s isn't stopped yet, because its preStop hook%s has run for %s", s.Container,
			hookInBrackets(v.preStop(s.Container)), lasted)
		cause.Waits, cause.Advice = "the hook to end", v.logs(s.Container, "")
	case "stop sandbox", "remove sandboxes", "release node resources", "remove container":
		cause.Sentence = fmt.Sprintf("the pod isn't gone yet: to %s has taken %s so far", s.Name, lasted)
	default:
		cause.Sentence = fmt.Sprintf("%s has been under way for %s", stepName(s), lasted)
	}
	return cause
}

// slowPull is a pull that takes long.
func (v view) slowPull(cause *Cause, s topic.Step) {
	image := s.Image
	if image == "" {
		image = containerOf(v.pod, s.Container).Image
	}
	lasted := words.Age(v.now.Sub(s.At))
	cause.Sentence = fmt.Sprintf("container %s can't start yet: its image %s has been pulled for %s and isn't here yet",
		s.Container, image, lasted)
	cause.Waits = "the registry " + diagnose.Registry(image) + ", or other pulls of this node"
	cause.Advice = fmt.Sprintf("if that lasts: curl -v https://%s/v2/ and df -h on this node", diagnose.Registry(image))
	if p, ok := pulls.Of(v.Pulls, image); ok {
		cause.Pull = &p
		cause.Sentence = fmt.Sprintf("container %s can't start yet: its image %s has been pulled for %s; %s",
			s.Container, image, lasted, p)
		cause.Waits = "the rest of the image from the registry " + diagnose.Registry(image)
	}
}

// Pulling reports whether a worker has an image pulled, so that it is worth asking the runtime how far that is.
func (w Snapshot) Pulling() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(w.Updates)), func(uid string) bool {
		return slices.ContainsFunc(stepsOf(w.Steps, uid).open, func(s topic.Step) bool { return s.Name == "ensure image" })
	})
}

// stepName is the step with what it is about.
func stepName(s topic.Step) string {
	text := strings.TrimSpace(s.Name + " " + s.Container)
	if s.Image != "" {
		text += " (" + s.Image + ")"
	}
	return text
}
