package why

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

// The steps of hooks, which belong to the container's stop or its start. A podsync before them tells of no hook but
// those of sidecars.
const (
	stepPreStop   = "run preStop hook"
	stepPostStart = "run postStart hook"
)

func isHookStep(name string) bool { return name == stepPreStop || name == stepPostStart }

// hookUnderWay is the step of a container's hook that has begun and not ended.
func (v view) hookUnderWay(name, container string) (step topic.Step, runs bool) {
	at := slices.IndexFunc(v.steps.open, func(s topic.Step) bool {
		return s.Name == name && s.Container == container && !v.forgotten(s)
	})
	if at < 0 {
		return topic.Step{}, false
	}
	return v.steps.open[at], true
}

// holdsHook reports whether the step is a stop or a start whose hook runs at the moment.
func (v view) holdsHook(s topic.Step) bool {
	hook, known := map[string]string{"stop container": stepPreStop, "start container": stepPostStart}[s.Name]
	if !known || s.Phase == topic.StepEnd {
		return false
	}
	_, runs := v.hookUnderWay(hook, s.Container)
	return runs
}

// hookEnded is how the last hook of the container's present run ended.
func (v view) hookEnded(name, container string) (step topic.Step, ended bool) {
	for _, s := range slices.Backward(v.Steps) {
		if s.UID != v.row.UID || s.Name != name || s.Container != container || s.Phase != topic.StepEnd {
			continue
		}
		if s.At.Before(v.startOf(container)) {
			break
		}
		return s, true
	}
	return topic.Step{}, false
}

// startOf is when the container was started; zero if that isn't known.
func (v view) startOf(container string) time.Time {
	status := v.status.Status
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		if s := find(list, container); s != nil && s.State.Running != nil {
			return s.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
}

// ofGrace is what is left of the grace period, to be added to a sentence.
func (v view) ofGrace() string {
	switch d := v.update.Deadline; {
	case d == nil:
		return ""
	case v.now.Before(*d):
		return fmt.Sprintf("; %s of the grace period are left", words.Age(d.Sub(v.now)))
	default:
		return "; the grace period is over"
	}
}

// since is how long something has been under way, and from when on.
func (v view) since(begin time.Time) string {
	return fmt.Sprintf("under way for %s, since %s", words.Age(v.now.Sub(begin)), begin.UTC().Format("15:04:05 UTC"))
}
