// Package state is what kubelot-api knows of the node: what it has read from the bus, and what follows from it. It has
// no clock and does no I/O; the daemon's loop owns it.
package state

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// State is the last value of every key that api reads, by topic.
type State struct {
	Updates map[string]topic.Pod       // by the pod's UID, as most are
	Mirrors map[string]topic.MirrorPod // by the mirror pod's own UID
	// Merged are the statuses that are shown. Computed are podsync's own: which containers there are, and which logs they
	// have, also while the status daemon is away.
	Merged   map[string]topic.Merged
	Computed map[string]topic.PodStatus
	Seen     map[string]topic.PodObservation // the runtime's view
	Health   map[string]topic.DaemonHealth   // by daemon
	// Node, Sources and Resources have one value each, with an empty key.
	Node      map[string]corev1.Node
	Sources   map[string]topic.Sources
	Resources map[string]topic.NodeResources
}

// New makes an empty state.
func New() *State {
	return &State{
		Updates: map[string]topic.Pod{}, Mirrors: map[string]topic.MirrorPod{}, Merged: map[string]topic.Merged{},
		Computed: map[string]topic.PodStatus{}, Seen: map[string]topic.PodObservation{},
		Health: map[string]topic.DaemonHealth{},
		Node:   map[string]corev1.Node{}, Sources: map[string]topic.Sources{}, Resources: map[string]topic.NodeResources{},
	}
}

// Addresses are the node's addresses; none as long as the Node isn't known.
func (s *State) Addresses() []corev1.NodeAddress { return s.Node[""].Status.Addresses }

// Pod is what there is of one pod, with its status as far as it is known.
type Pod struct {
	*corev1.Pod
	Status corev1.PodStatus
	// Seen is the runtime's view; empty where it has nothing of the pod.
	Seen topic.PodObservation
}

// Pod finds a pod by name. Of several, the one that is not over wins, then the latest: a new pod of an old name is the
// one that is meant.
func (s *State) Pod(namespace, name string) (Pod, bool) {
	var best *topic.Pod
	for _, p := range s.Updates {
		if p.Pod.Name == name && p.Pod.Namespace == namespace && (best == nil || preferred(p, *best)) {
			best = &p
		}
	}
	if best == nil {
		return Pod{}, false
	}
	return s.whole(*best), true
}

func preferred(a, b topic.Pod) bool {
	if over := a.Lifecycle == topic.Terminated; over != (b.Lifecycle == topic.Terminated) {
		return !over
	}
	return a.FirstSeen.After(b.FirstSeen)
}

func (s *State) whole(p topic.Pod) Pod {
	uid := string(p.Pod.UID)
	pod := Pod{Pod: p.Pod, Status: s.Merged[uid].Status, Seen: s.Seen[uid]}
	if computed, ok := s.Computed[uid]; ok {
		pod.Status = computed.Status
	}
	return pod
}

// IsUID reports whether uid names the pod: it is the pod's own UID, or its mirror pod's, or empty.
func (s *State) IsUID(pod Pod, uid string) bool {
	m, mirrored := s.Mirrors[uid]
	return uid == "" || uid == string(pod.UID) || mirrored && m.Name == pod.Name && m.Namespace == pod.Namespace
}

// Pods are the pods that the node is to have, with their statuses, by namespace and name. What the sources have no
// longer and is being ended isn't among them.
func (s *State) Pods() []corev1.Pod {
	var list []corev1.Pod
	sources := s.Sources[""]
	for uid, p := range s.Updates {
		if p.Lifecycle != topic.Syncing && sources.Ready && !slices.Contains(sources.Pods, uid) {
			continue
		}
		list = append(list, s.shown(uid, p))
	}
	sortPods(list)
	return list
}

// shown is the pod with its merged status. Where that isn't there yet, the pod has the computed one, which claims no
// readiness, and before that it is Pending.
func (s *State) shown(uid string, p topic.Pod) corev1.Pod {
	pod := *p.Pod
	if m, ok := s.Merged[uid]; ok {
		pod.Status, pod.ResourceVersion = m.Status, later(pod.ResourceVersion, m.ResourceVersion)
		return pod
	}
	pod.Status.Phase = corev1.PodPending
	if computed, ok := s.Computed[uid]; ok {
		pod.Status = computed.Status
	}
	return pod
}

// later is the later of two resource versions of an object (KEP-5504: they are numbers).
func later(a, b string) string {
	if len(b) > len(a) || len(b) == len(a) && b > a {
		return b
	}
	return a
}

// Running are the pods that have anything running at the runtime, with the few fields that it knows.
func (s *State) Running() []corev1.Pod {
	var list []corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(s.Seen)) {
		seen := s.Seen[uid]
		pod := corev1.Pod{}
		pod.Name, pod.Namespace, pod.UID = seen.Name, seen.Namespace, types.UID(uid)
		runs := slices.ContainsFunc(seen.Sandboxes, func(sandbox topic.Sandbox) bool { return sandbox.Ready })
		for _, c := range seen.Containers {
			if c.State == topic.ContainerRunning {
				runs = true
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
			}
		}
		if runs {
			list = append(list, pod)
		}
	}
	sortPods(list)
	return list
}

func sortPods(list []corev1.Pod) {
	slices.SortFunc(list, func(a, b corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
}

// Container finds the container of that ID in the runtime's view.
func (p Pod) Container(id string) (topic.Container, bool) {
	for _, c := range p.Seen.Containers {
		if c.ID == id {
			return c, true
		}
	}
	return topic.Container{}, false
}

// RunningContainer is the ID of the container of that name that runs.
func (p Pod) RunningContainer(name string) (id string, ok bool) {
	for _, c := range p.Seen.Containers {
		if c.Name == name && c.State == topic.ContainerRunning {
			return c.ID, true
		}
	}
	return "", false
}

// Sandbox is the ID of the pod's sandbox that is ready.
func (p Pod) Sandbox() (id string, ok bool) {
	for _, s := range p.Seen.Sandboxes {
		if s.Ready {
			return s.ID, true
		}
	}
	return "", false
}

// SpecOf is the specification of the container: an init, main or ephemeral one; nil if there is none of the name.
func (p Pod) SpecOf(name string) *corev1.Container {
	for c := range podspec.Containers(&p.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}
