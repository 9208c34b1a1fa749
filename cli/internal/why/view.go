package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/daemon/podspec"
)

// view is one pod with all that is known of it.
type view struct {
	Snapshot
	pod    *corev1.Pod
	update topic.Pod
	status topic.PodStatus
	row    pods.Row
	steps  steps
	now    time.Time
}

// orNothing adds a cause that says that none was found, if there is none here or for the node.
func (v view) orNothing(causes, node []Cause) []Cause {
	if len(causes)+len(node) > 0 {
		return append(node, causes...)
	}
	return []Cause{{
		"pod", "no message on the bus says what it waits for; the timeline shows the last actions",
		fmt.Sprintf("kubelot tap --since 5m --pod %s/%s shows every message about it", v.pod.Namespace, v.pod.Name),
	}}
}

// waiting are the causes of a pod that should run.
func (v view) waiting() []Cause {
	causes := append(v.volumeCauses(topic.VolumeMounted), v.containerCauses()...)
	causes = append(causes, v.stepCauses(causes)...)
	return append(causes, v.gates()...)
}

// volumeCauses are the volumes that aren't in the phase.
func (v view) volumeCauses(want topic.VolumePhase) []Cause {
	var causes []Cause
	volumes := v.Volumes[v.row.UID].Volumes
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		volume := volumes[name]
		if volume.Phase == want {
			continue
		}
		c := Cause{What: "volume " + name, Problem: "is being set up"}
		if want == topic.VolumeUnmounted {
			c.Problem = "isn't unmounted yet"
		}
		if volume.Message != "" {
			c.Problem = strings.TrimPrefix(volume.Reason+": "+volume.Message, ": ")
			c.Advice = "it is retried automatically once that is fixed"
		}
		causes = append(causes, c)
	}
	return causes
}

// containerCauses are the containers that wait, run without being ready, or end. While an init container isn't done, it
// is the only one.
func (v view) containerCauses() []Cause {
	for i := range v.pod.Spec.InitContainers {
		c := &v.pod.Spec.InitContainers[i]
		s := find(v.status.Status.InitContainerStatuses, c.Name)
		if causes := v.initCauses(c, s, podspec.IsSidecar(c)); len(causes) > 0 {
			return causes
		}
	}
	var causes []Cause
	for i := range v.pod.Spec.Containers {
		c := &v.pod.Spec.Containers[i]
		if s := find(v.status.Status.ContainerStatuses, c.Name); s != nil {
			causes = append(causes, v.containerCause("container "+c.Name, c, s)...)
		}
	}
	return causes
}

func (v view) initCauses(c *corev1.Container, s *corev1.ContainerStatus, sidecar bool) []Cause {
	what := "init container " + c.Name
	switch {
	case s == nil || s.State.Terminated != nil && s.State.Terminated.ExitCode == 0 && !sidecar:
		return nil
	case s.State.Running != nil && !sidecar:
		return []Cause{{what, "runs for " + words.Age(v.now.Sub(s.State.Running.StartedAt.Time)) +
			"; the containers after it start when it has succeeded", v.logs(c.Name, "")}}
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
		return []Cause{{what, exit(s.State.Terminated), v.logs(c.Name, "")}}
	}
	return nil
}

func (v view) waitingCause(what string, c *corev1.Container, s *corev1.ContainerStatus) []Cause {
	w := s.State.Waiting
	if w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
		return nil // what it waits for is a cause of its own
	}
	problem := strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
	if t := s.LastTerminationState.Terminated; t != nil {
		problem += fmt.Sprintf("; started %s, it last %s, %s ago", words.Plural(int(s.RestartCount)+1, "time"), exit(t),
			words.Age(v.now.Sub(t.FinishedAt.Time)))
	}
	return []Cause{{what, problem, v.advice(c, s)}}
}

// advice is what to do about the reason for which a container waits.
func (v view) advice(c *corev1.Container, s *corev1.ContainerStatus) string {
	switch s.State.Waiting.Reason {
	case "ErrImagePull", "ImagePullBackOff":
		return "check the image's name, that this node reaches the registry, and the pod's imagePullSecrets; it is " +
			"retried automatically"
	case "ErrImageNeverPull":
		return "the image isn't on this node and imagePullPolicy is Never: import it, or let it be pulled"
	case "InvalidImageName":
		return "fix the image's name in the spec"
	case "CreateContainerConfigError":
		return "create what is missing, or fix the spec; it is retried automatically"
	case "CrashLoopBackOff":
		if t := s.LastTerminationState.Terminated; t != nil && t.Reason == "OOMKilled" {
			return "it needs more memory than its limit of " + c.Resources.Limits.Memory().String()
		}
		return v.logs(c.Name, " --previous")
	}
	return ""
}

func (v view) logs(container, flags string) string {
	return fmt.Sprintf("kubectl logs -n %s %s -c %s%s", v.pod.Namespace, v.pod.Name, container, flags)
}

// probeCauses are the probes that keep a running container from being ready.
func (v view) probeCauses(what string, c *corev1.Container, s *corev1.ContainerStatus) []Cause {
	for _, p := range []struct {
		kind  string
		probe *corev1.Probe
	}{{topic.ProbeStartup, c.StartupProbe}, {topic.ProbeReadiness, c.ReadinessProbe}} {
		if p.probe == nil {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		result, ok := v.Probes[bus.Key(v.row.UID, c.Name, p.kind)]
		switch {
		case !ok || result.ContainerID != id:
			return []Cause{{what, fmt.Sprintf("runs for %s; its %s probe hasn't decided yet%s",
				words.Age(v.now.Sub(s.State.Running.StartedAt.Time)), p.kind, v.lastRun(c.Name)), ""}}
		case !result.Success:
			return []Cause{{
				what, fmt.Sprintf("its %s probe fails for %s: %s", p.kind, words.Age(v.now.Sub(result.Since)),
					cmp.Or(strings.TrimSpace(result.Message), "without a message")),
				v.logs(c.Name, ""),
			}}
		}
	}
	return nil
}

// lastRun is what the Event of the container's last failed probe said.
func (v view) lastRun(container string) string {
	for _, e := range slices.Backward(v.Events) {
		if e.UID == v.row.UID && e.Reason == "Unhealthy" && strings.HasSuffix(e.FieldPath, "{"+container+"}") {
			return "; " + strings.TrimSpace(e.Message)
		}
	}
	return ""
}

// gates are the readiness gates whose condition isn't True.
func (v view) gates() []Cause {
	var causes []Cause
	for _, gate := range v.pod.Spec.ReadinessGates {
		state := "nobody has set the condition"
		for _, c := range v.Status(v.row.UID).Conditions {
			if c.Type == gate.ConditionType {
				state = strings.TrimSpace(fmt.Sprintf("the condition is %s %s %s", c.Status, c.Reason, c.Message))
			}
		}
		if !strings.HasPrefix(state, "the condition is True") {
			causes = append(causes, Cause{
				"readiness gate " + string(gate.ConditionType), state,
				"its controller must set it True",
			})
		}
	}
	return causes
}

func find(statuses []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
