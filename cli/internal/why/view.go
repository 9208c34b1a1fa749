package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why/diagnose"
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

// names are those of the pod and, where there is one, of the container.
func (v view) names(c *corev1.Container) diagnose.Names {
	n := names(topic.RefOf(v.pod))
	if c != nil {
		n.Container, n.Image = c.Name, c.Image
	}
	return n
}

// withNode adds what is wrong with the node. What keeps every pod comes before the pod's own causes, and the rest after
// them. If nothing is wrong anywhere, the cause says so.
func (v view) withNode(causes []Cause) []Cause {
	vital, others := v.nodeCauses(&v.update, v.now)
	if at := slices.IndexFunc(others, func(c Cause) bool { return c.What == "daemon probe" }); at >= 0 &&
		slices.ContainsFunc(causes, func(c Cause) bool { return strings.HasSuffix(c.Kind, "-probe-undecided") }) {
		vital, others = append(vital, others[at]), slices.Delete(others, at, at+1)
	}
	if all := slices.Concat(vital, causes, others); len(all) > 0 {
		return all
	}
	return []Cause{{
		Kind: "unknown", Sentence: "nothing on this node says what it waits for",
		What: "pod", Problem: "no message on the bus says what it waits for; the timeline shows the last actions",
		Advice: fmt.Sprintf("kubelot tap --since 5m --pod %s/%s shows every message about it", v.pod.Namespace, v.pod.Name),
	}}
}

// waiting are the causes of a pod that should run.
func (v view) waiting() []Cause {
	causes := append(allocationCauses(v), v.volumeCauses(topic.VolumeMounted)...)
	causes = append(causes, v.containerCauses()...)
	causes = append(causes, debugCauses(v)...)
	causes = append(causes, v.stepCauses(causes)...)
	return append(causes, v.gates()...)
}

// volumeCauses are the volumes that aren't in the phase; those of which something is said come first.
func (v view) volumeCauses(want topic.VolumePhase) []Cause {
	var told, silent []Cause
	volumes := v.Volumes[v.row.UID].Volumes
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		volume := volumes[name]
		switch {
		case volume.Phase == want:
		case volume.Message != "":
			told = append(told, v.volumeCause(name, volume, want))
		case want == topic.VolumeUnmounted:
			silent = append(silent, Cause{
				Kind: "unmount-slow", Sentence: "the pod isn't gone yet: its volume " + name + " is being unmounted",
				What: "volume " + name, Problem: "isn't unmounted yet", Waits: "the volume to be unmounted",
			})
		default:
			silent = append(silent, Cause{
				Kind: "volume-pending", Sentence: "the pod can't start yet: its volume " + name + " is being set up",
				What: "volume " + name, Problem: "is being set up", Waits: "the volume to be mounted",
			})
		}
	}
	return append(told, silent...)
}

func (v view) volumeCause(name string, volume topic.Volume, want topic.VolumePhase) Cause {
	c := Cause{
		What:    "volume " + name,
		Problem: strings.TrimPrefix(volume.Reason+": "+volume.Message, ": "),
	}
	n := v.names(nil)
	n.Volume = name
	if want == topic.VolumeUnmounted {
		return c.found("the pod isn't gone, because its volume "+name+" can't be unmounted: ",
			diagnose.Unmount(volume.Message, n))
	}
	return c.found("the pod can't start, because its volume "+name+" can't be mounted: ",
		diagnose.Volume(volume.Message, n))
}

// containerCauses are the containers that wait, run without being ready, or end. While an init container holds up the
// others, it is the only one. Once these have begun, what is wrong with a sidecar comes after them.
func (v view) containerCauses() []Cause {
	var besides []Cause
	for i := range v.pod.Spec.InitContainers {
		c := &v.pod.Spec.InitContainers[i]
		s := find(v.status.Status.InitContainerStatuses, c.Name)
		causes := v.initCauses(c, s, podspec.IsSidecar(c))
		if len(causes) > 0 && (!podspec.IsSidecar(c) || !begun(v.status.Status.ContainerStatuses)) {
			return causes
		}
		besides = append(besides, causes...)
	}
	var causes []Cause
	for i := range v.pod.Spec.Containers {
		c := &v.pod.Spec.Containers[i]
		if s := find(v.status.Status.ContainerStatuses, c.Name); s != nil {
			causes = append(causes, v.containerCause("container "+c.Name, c, s)...)
		}
	}
	return append(causes, besides...)
}

// begun reports whether a regular container has run, so that no sidecar holds these up.
func begun(statuses []corev1.ContainerStatus) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// gates are the readiness gates whose condition isn't True.
func (v view) gates() []Cause {
	var causes []Cause
	for _, gate := range v.pod.Spec.ReadinessGates {
		state, why := "nobody has set the condition", "nobody has set its condition"
		for _, c := range v.Status(v.row.UID).Conditions {
			if c.Type == gate.ConditionType {
				state = strings.TrimSpace(fmt.Sprintf("the condition is %s %s %s", c.Status, c.Reason, c.Message))
				why = strings.TrimSuffix(fmt.Sprintf("its condition is %s: %s", c.Status, c.Reason+" "+c.Message), ":  ")
			}
		}
		if !strings.HasPrefix(state, "the condition is True") {
			name := string(gate.ConditionType)
			causes = append(causes, Cause{
				Kind: "readiness-gate", Sentence: "the pod isn't ready, because its readiness gate " + name + " is shut: " + why,
				What: "readiness gate " + name, Problem: state, Waits: "the condition to be True",
				Advice: "its controller must set it True",
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

// containerOf is the pod's container of that name; an empty one if it has none.
func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for c := range podspec.InitAndMain(&pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return &corev1.Container{Name: name}
}
