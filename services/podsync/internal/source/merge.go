package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// The annotations that the kubelet keeps about a pod's origin. Runtimes and log collectors read them.
const (
	annotationSource = "kubernetes.io/config.source"
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
	sets    map[topic.Source]map[string]*arrival
	mirrors []topic.MirrorPod
	next    int
}

// arrival is one pod of one source.
type arrival struct {
	Pod
	// raw is the pod as delivered.
	raw   *corev1.Pod
	order int
}

// NewMerge expects sets from exactly these sources.
func NewMerge(sources ...topic.Source) *Merge {
	return &Merge{sources: sources, sets: map[topic.Source]map[string]*arrival{}}
}

// Set takes a source's new set. A set with an error changes nothing, and so does a set of a source
// that isn't expected; it reports whether the set was taken.
func (m *Merge) Set(s Set, now time.Time) bool {
	if s.Err != nil || !slices.Contains(m.sources, s.Source) {
		return false
	}
	before, after := m.sets[s.Source], make(map[string]*arrival, len(s.Pods))
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
		after[string(pod.UID)] = m.arrive(before[string(pod.UID)], pod, s.Source, now)
	}
	m.sets[s.Source] = after
	if s.Source == topic.SourceAPI {
		m.mirrors = mirrors
	}
	return true
}

// arrive is the arrival of a pod that was known as before, or unknown.
func (m *Merge) arrive(before *arrival, pod *corev1.Pod, source topic.Source, now time.Time) *arrival {
	if before != nil && same(before.raw, pod) {
		return before
	}
	a := &arrival{raw: pod, Pod: Pod{Source: source, FirstSeen: now}}
	if before != nil {
		a.order, a.FirstSeen = before.order, before.FirstSeen
	} else {
		a.order = m.next
		m.next++
	}
	own := *pod
	own.Annotations = maps.Clone(pod.Annotations)
	if own.Annotations == nil {
		own.Annotations = map[string]string{}
	}
	own.Annotations[annotationSource] = string(source)
	own.Annotations[annotationSeen] = a.FirstSeen.Format(time.RFC3339Nano)
	a.Pod.Pod = &own
	return a
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
	d := Desired{Mirrors: slices.Clone(m.mirrors)}
	var all []*arrival
	names := map[types.NamespacedName]topic.Source{} // of static pods
	for _, source := range []topic.Source{topic.SourceFile, topic.SourceHTTP, topic.SourceAPI} {
		set := slices.SortedFunc(maps.Values(m.sets[source]), byOrder)
		for _, a := range set {
			name := types.NamespacedName{Namespace: a.raw.Namespace, Name: a.raw.Name}
			other, taken := names[name]
			if taken {
				d.Conflicts = append(d.Conflicts, conflict(a, other, name.String()))
			}
			if taken && source != topic.SourceAPI {
				continue
			}
			if source != topic.SourceAPI && m.sets[topic.SourceAPI][string(a.raw.UID)] != nil {
				d.Conflicts = append(d.Conflicts, Problem{Source: source, Where: "pod " + name.String(), Message: fmt.Sprintf(
					"it has the UID %s of a pod at the API server and is left out: remove metadata.uid from the manifest", a.raw.UID)})
				continue
			}
			if source != topic.SourceAPI {
				names[name] = source
			}
			all = append(all, a)
		}
	}
	slices.SortFunc(all, byOrder)
	d.Pods = make([]Pod, 0, len(all))
	for _, a := range all {
		d.Pods = append(d.Pods, a.Pod)
	}
	return d
}

func byOrder(a, b *arrival) int { return cmp.Compare(a.order, b.order) }

func conflict(a *arrival, other topic.Source, name string) Problem {
	p := Problem{Source: a.Source, Where: "pod " + name}
	if a.Source == topic.SourceAPI {
		p.Warning = true
		p.Message = fmt.Sprintf(
			"a static pod (%s) has the same name, and can have no mirror pod: delete the pod at the API server", other)
		return p
	}
	p.Message = fmt.Sprintf("it is left out, since a pod of the source %q has the same name: rename one of them", other)
	return p
}
