package source

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// The annotations that the kubelet keeps about a pod's origin, with topic.SourceAnnotation. Runtimes and log collectors
// read them.
const (
	annotationSeen   = "kubernetes.io/config.seen"
	annotationMirror = "kubernetes.io/config.mirror"
)

// Pod is a wanted pod.
type Pod struct {
	// Pod carries the annotations kubernetes.io/config.source and kubernetes.io/config.seen. The pointer changes
	// if and only if the pod does.
	Pod    *corev1.Pod
	Source topic.Source
	// FirstSeen is when the pod was first delivered.
	FirstSeen time.Time
}

// Desired is what all sources together want.
type Desired struct {
	// Pods are in the order of their first arrival.
	Pods []Pod
	// Mirrors are the mirror pods that the API server has for this node.
	Mirrors []topic.MirrorPod
	// Conflicts are the pods that have the name or UID of another.
	Conflicts []Problem
}

// Merge keeps the last set of every source. It is not safe for concurrent use.
type Merge struct {
	sources []topic.Source
	sets    map[topic.Source]map[string]*arrival // by UID
	order   []*arrival                           // of all sets, in the order of their first arrival
	mirrors []topic.MirrorPod
	round   uint64 // counts the sets
}

// arrival is one pod of one source.
type arrival struct {
	Pod
	// raw is the pod as delivered.
	raw *corev1.Pod
	// round is that of its source's last set that has it.
	round uint64
}

// NewMerge expects sets from exactly these sources.
func NewMerge(sources ...topic.Source) *Merge {
	return &Merge{sources: sources, sets: map[topic.Source]map[string]*arrival{}}
}

// Set takes a source's new set. A set with an error changes nothing, and so does a set of a source
// that isn't expected; it reports whether the set was taken. It runs after each change of a pod, so it costs little for
// the pods that haven't changed.
func (m *Merge) Set(s Set, now time.Time) bool {
	if s.Err != nil || !slices.Contains(m.sources, s.Source) {
		return false
	}
	if m.sets[s.Source] == nil {
		m.sets[s.Source] = make(map[string]*arrival, len(s.Pods))
	}
	m.round++
	set, pods := m.sets[s.Source], 0
	var mirrors []topic.MirrorPod
	for _, pod := range s.Pods {
		hash, mirror := pod.Annotations[annotationMirror]
		if mirror && s.Source == topic.SourceAPI {
			mirrors = append(mirrors, topic.MirrorPod{
				Ref: topic.RefOf(pod), Hash: hash, Deleting: pod.DeletionTimestamp != nil,
				ResourceVersion: pod.ResourceVersion, Status: pod.Status,
			})
			continue
		}
		a := set[string(pod.UID)]
		if a == nil {
			a = &arrival{Pod: Pod{Source: s.Source, FirstSeen: now}}
			set[string(pod.UID)], m.order = a, append(m.order, a)
		}
		if a.round == m.round {
			continue // two pods with one UID: the first counts
		}
		a.round = m.round
		pods++
		a.deliver(pod)
	}
	if len(set) > pods {
		m.forget(s.Source)
	}
	if s.Source == topic.SourceAPI {
		m.mirrors = mirrors
	}
	return true
}

// forget removes the source's pods that its last set doesn't have.
func (m *Merge) forget(source topic.Source) {
	gone := func(a *arrival) bool { return a.Source == source && a.round != m.round }
	m.order = slices.DeleteFunc(m.order, gone)
	maps.DeleteFunc(m.sets[source], func(_ string, a *arrival) bool { return gone(a) })
}

// deliver takes the pod as its source has it now.
func (a *arrival) deliver(pod *corev1.Pod) {
	if a.raw != nil && same(a.raw, pod) {
		return
	}
	own := *pod
	own.Annotations = maps.Clone(pod.Annotations)
	if own.Annotations == nil {
		own.Annotations = map[string]string{}
	}
	own.Annotations[topic.SourceAnnotation] = string(a.Source)
	own.Annotations[annotationSeen] = a.FirstSeen.Format(time.RFC3339Nano)
	a.raw, a.Pod.Pod = pod, &own
}

// same reports whether two deliveries are one pod in one state: the same object, or the same version of it after a
// new list of the API server.
func same(a, b *corev1.Pod) bool {
	return a == b || a.ResourceVersion != "" && a.ResourceVersion == b.ResourceVersion
}

// Ready reports whether every source has delivered once. Nothing may be removed before.
func (m *Merge) Ready() bool { return len(m.Waiting()) == 0 }

// Waiting are the sources that have not delivered yet.
func (m *Merge) Waiting() []topic.Source {
	var waiting []topic.Source
	for _, s := range m.sources {
		if m.sets[s] == nil {
			waiting = append(waiting, s)
		}
	}
	return waiting
}

// Desired is the union of the last sets. Of two static pods with one name the file's counts. An API pod never
// displaces a static one, or everyone who may create pods could take a control plane's place: it runs next to it,
// as with the kubelet, and the static pod goes without a mirror pod.
func (m *Merge) Desired() Desired {
	d := Desired{Pods: make([]Pod, 0, len(m.order)), Mirrors: slices.Clone(m.mirrors)}
	static := m.static(&d)
	for _, a := range m.order {
		other := static[nameOf(a)]
		switch {
		case a.Source == topic.SourceAPI && other != nil:
			d.Conflicts = append(d.Conflicts, conflict(a, other.Source))
		case a.Source != topic.SourceAPI && other != a:
			continue
		}
		d.Pods = append(d.Pods, a.Pod)
	}
	return d
}

// static are the static pods that count, by name. What is wrong with the others goes to d.
func (m *Merge) static(d *Desired) map[types.NamespacedName]*arrival {
	static := map[types.NamespacedName]*arrival{}
	for _, source := range []topic.Source{topic.SourceFile, topic.SourceHTTP} {
		if len(m.sets[source]) == 0 {
			continue
		}
		for _, a := range m.order {
			if a.Source != source {
				continue
			}
			name := nameOf(a)
			if other := static[name]; other != nil {
				d.Conflicts = append(d.Conflicts, conflict(a, other.Source))
				continue
			}
			if m.sets[topic.SourceAPI][string(a.raw.UID)] != nil {
				d.Conflicts = append(d.Conflicts, Problem{Source: source, Where: "pod " + name.String(), Message: fmt.Sprintf(
					"it has the UID %s of a pod at the API server and is left out: remove metadata.uid from the manifest", a.raw.UID)})
				continue
			}
			static[name] = a
		}
	}
	return static
}

func nameOf(a *arrival) types.NamespacedName {
	return types.NamespacedName{Namespace: a.raw.Namespace, Name: a.raw.Name}
}

func conflict(a *arrival, other topic.Source) Problem {
	p := Problem{Source: a.Source, Where: "pod " + nameOf(a).String()}
	if a.Source == topic.SourceAPI {
		p.Warning = true
		p.Message = fmt.Sprintf(
			"a static pod (%s) has the same name, and can have no mirror pod: delete the pod at the API server", other)
		return p
	}
	p.Message = fmt.Sprintf("it is left out, since a pod of the source %q has the same name: rename one of them", other)
	return p
}
