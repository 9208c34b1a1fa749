// Package world is what kubelot-api knows of the node: what it has read from the bus, and what follows from it. It has no
// clock and does no I/O; the daemon's loop owns it.
package world

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// World is the last value of every key that api reads, by topic.
type World struct {
	Updates  map[string]topic.Pod            // by the pod's UID, as most are
	Objects  map[string]topic.APIPod         // what the API server has of the pods' statuses
	Mirrors  map[string]topic.MirrorPod      // by the mirror pod's own UID
	Statuses map[string]topic.PodStatus      // as computed
	Seen     map[string]topic.PodObservation // the runtime's view
	Probes   map[string]topic.Probe          // by pod, container and kind
	Health   map[string]topic.DaemonHealth   // by daemon
	// Node and Sources have one value each, with an empty key.
	Node    map[string]corev1.Node
	Sources map[string]topic.Sources
}

// New makes an empty world.
func New() *World {
	return &World{
		Updates: map[string]topic.Pod{}, Objects: map[string]topic.APIPod{}, Mirrors: map[string]topic.MirrorPod{},
		Statuses: map[string]topic.PodStatus{}, Seen: map[string]topic.PodObservation{}, Probes: map[string]topic.Probe{},
		Health: map[string]topic.DaemonHealth{}, Node: map[string]corev1.Node{}, Sources: map[string]topic.Sources{},
	}
}

// Addresses are the node's addresses; none as long as the Node isn't known.
func (w *World) Addresses() []corev1.NodeAddress { return w.Node[""].Status.Addresses }

// Pod is what there is of one pod, with its status as far as it is known.
type Pod struct {
	*corev1.Pod
	Status corev1.PodStatus
	// Seen is the runtime's view; nil where it has nothing of the pod.
	Seen *topic.PodObservation
}

// Pod finds a pod by name. Of several, the one that is not over wins, then the latest: a new pod of an old name is the one
// that is meant.
func (w *World) Pod(namespace, name string) (Pod, bool) {
	var best *topic.Pod
	for _, p := range w.Updates {
		if p.Pod.Name == name && p.Pod.Namespace == namespace && (best == nil || preferred(p, *best)) {
			best = &p
		}
	}
	if best == nil {
		return Pod{}, false
	}
	return w.whole(*best), true
}

func preferred(a, b topic.Pod) bool {
	if over := a.Lifecycle == topic.Terminated; over != (b.Lifecycle == topic.Terminated) {
		return !over
	}
	return a.FirstSeen.After(b.FirstSeen)
}

func (w *World) whole(p topic.Pod) Pod {
	uid := string(p.Pod.UID)
	pod := Pod{Pod: p.Pod, Status: w.Objects[uid].Status}
	if s, ok := w.Statuses[uid]; ok {
		pod.Status = s.Status
	}
	if seen, ok := w.Seen[uid]; ok {
		pod.Seen = &seen
	}
	return pod
}

// IsUID tells whether a caller that says uid means the pod: the pod's own UID, or its mirror pod's, or none at all.
func (w *World) IsUID(pod Pod, uid string) bool {
	m, mirrored := w.Mirrors[uid]
	return uid == "" || uid == string(pod.UID) || mirrored && m.Name == pod.Name && m.Namespace == pod.Namespace
}

// Pods are the pods that the node is to have, with their statuses, by namespace and name. What the sources have no longer and
// is being ended isn't among them.
func (w *World) Pods() []corev1.Pod {
	var list []corev1.Pod
	sources := w.Sources[""]
	for uid, p := range w.Updates {
		if p.Lifecycle != topic.Syncing && sources.Ready && !slices.Contains(sources.Pods, uid) {
			continue
		}
		pod := *p.Pod
		pod.Status.Phase = corev1.PodPending
		if o, ok := w.Objects[uid]; ok {
			pod.Status, pod.ResourceVersion = o.Status, o.ResourceVersion
		}
		if s, ok := w.Statuses[uid]; ok {
			pod.Status = w.complete(&pod, s.Status)
		}
		list = append(list, pod)
	}
	sortPods(list)
	return list
}

// Running are the pods that have anything running at the runtime, with the few fields that it knows.
func (w *World) Running() []corev1.Pod {
	var list []corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.Seen)) {
		seen := w.Seen[uid]
		pod := corev1.Pod{}
		pod.Name, pod.Namespace, pod.UID = seen.Name, seen.Namespace, types.UID(uid)
		runs := slices.ContainsFunc(seen.Sandboxes, func(s topic.Sandbox) bool { return s.Ready })
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
	if p.Seen == nil {
		return topic.Container{}, false
	}
	i := slices.IndexFunc(p.Seen.Containers, func(c topic.Container) bool { return c.ID == id })
	if i < 0 {
		return topic.Container{}, false
	}
	return p.Seen.Containers[i], true
}

// RunningContainer is the ID of the container of that name that runs.
func (p Pod) RunningContainer(name string) (id string, ok bool) {
	if p.Seen == nil {
		return "", false
	}
	for _, c := range p.Seen.Containers {
		if c.Name == name && c.State == topic.ContainerRunning {
			return c.ID, true
		}
	}
	return "", false
}

// Sandbox is the ID of the pod's sandbox that is ready.
func (p Pod) Sandbox() (id string, ok bool) {
	if p.Seen == nil {
		return "", false
	}
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
