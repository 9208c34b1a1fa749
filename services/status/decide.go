package status

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// verb is what to ask of the API server.
type verb string

const (
	doNothing verb = ""
	doGet     verb = "get"
	doPatch   verb = "patch status"
	doDelete  verb = "delete"
	doCreate  verb = "create mirror pod"
)

// action is one request to the API server.
type action struct {
	verb verb
	key  string
	// Namespace, Name and UID are the API object's.
	topic.Ref
	// since is the newest version of the object that is known when the action is decided.
	since uint64
	patch []byte
	says  says
	pod   *corev1.Pod // to be created
	// upToDate is true where the API server has the pod's status as it is wanted.
	upToDate bool
}

// says stands for what a status says. A write that says the same as the last one undoes what others have written since.
type says struct {
	news int // the pod's
	// ready is the status and the message of the condition Ready, which others change by the pod's readiness gates.
	ready string
}

// decide is the next request for a key; more may follow once it has been answered.
func (s *state) decide(key string, now time.Time) (action, error) {
	if uid, ok := strings.CutPrefix(key, "mirror/"); ok {
		return s.decideMirror(uid), nil
	}
	p := s.pods[key]
	switch {
	case p == nil || p.update == nil:
		return action{}, nil
	case p.update.Static():
		return s.decideStatic(key, p, now)
	case p.patch == nil || !p.watched || p.gone || p.deleted:
		// A pod that podsync's watch doesn't have is not at the API server, or pod.object is about to come.
		return action{}, nil
	}
	ref := topic.Ref{Namespace: p.update.Pod.Namespace, Name: p.update.Pod.Name, UID: key}
	a, err := p.write(ref, &p.served, merger{s}.merge(p, now))
	a.key = key
	if a.upToDate && p.patch.Finished && p.update.Pod.DeletionTimestamp != nil {
		return action{verb: doDelete, key: key, Ref: ref, upToDate: true}, nil
	}
	return a, err
}

// write is the request that brings the status of the API object ref, as it is known, up to date, if the API server
// takes it.
func (p *pod) write(ref topic.Ref, has *served, wanted *corev1.PodStatus) (action, error) {
	base := has.known()
	if base == nil {
		return action{verb: doGet, Ref: ref, since: has.version}, nil
	}
	patch, err := diff(*base, *wanted, ref.UID)
	if err != nil || patch == nil || bytes.Equal(patch, has.refused) {
		return action{upToDate: err == nil}, err
	}
	a := action{verb: doPatch, Ref: ref, since: has.version, patch: patch, says: says{news: p.news}}
	if c := condition(wanted.Conditions, corev1.PodReady); c != nil {
		a.says.ready = string(c.Status) + c.Message
	}
	return a, nil
}

// decideStatic keeps a static pod's mirror pod there and its status up to date.
func (s *state) decideStatic(key string, p *pod, now time.Time) (action, error) {
	m := s.mirrorOf(p.update.Pod)
	switch {
	case m == nil && s.wanted(key, p) && owns(s.node):
		ref := topic.Ref{Namespace: p.update.Pod.Namespace, Name: p.update.Pod.Name}
		return action{verb: doCreate, key: key, Ref: ref, pod: mirrorPod(p.update.Pod, s.node)}, nil
	case m == nil || !m.usable(p.update.Pod) || p.patch == nil:
		return action{}, nil
	}
	a, err := p.write(m.Ref, &m.served, merger{s}.merge(p, now))
	a.key = key
	return a, err
}

// owns reports whether mirror pods can be made for the Node: it is registered, and isn't being deleted.
func owns(node corev1.Node) bool { return node.UID != "" && node.DeletionTimestamp == nil }

// wanted reports whether a static pod's manifest is still there.
func (s *state) wanted(uid string, p *pod) bool {
	if s.sources.Ready {
		return slices.Contains(s.sources.Pods, uid)
	}
	return p.update.Lifecycle == topic.Syncing
}

// mirrorOf is the static pod's mirror pod: the usable one while an old one is being removed.
func (s *state) mirrorOf(static *corev1.Pod) *mirror {
	var found *mirror
	for _, m := range s.mirrors {
		if m.Namespace != static.Namespace || m.Name != static.Name {
			continue
		}
		if m.usable(static) {
			return m
		}
		found = m
	}
	return found
}

// usable reports whether the mirror pod stands for the static pod as it is now.
func (m *mirror) usable(static *corev1.Pod) bool {
	return !m.Deleting && !m.asked && m.Hash == hashOf(static)
}

// decideMirror removes a mirror pod that has no static pod any more, an outdated one, and one that somebody has
// deleted: its static pod runs on, and gets a new one.
func (s *state) decideMirror(uid string) action {
	m := s.mirrors[uid]
	if m == nil || m.asked {
		return action{}
	}
	remove := action{verb: doDelete, key: mirrorKey(uid), Ref: m.Ref}
	if m.doubtful {
		remove.verb, remove.since = doGet, m.served.version
	}
	stopping := false
	for uid, p := range s.pods {
		if p.update == nil || !p.update.Static() || p.update.Pod.Namespace != m.Namespace || p.update.Pod.Name != m.Name {
			continue
		}
		if s.wanted(uid, p) {
			if m.Deleting || m.Hash != hashOf(p.update.Pod) {
				return remove
			}
			return action{}
		}
		stopping = stopping || p.update.Lifecycle != topic.Terminated
	}
	if !stopping && allTold(s.sources, s.pods) {
		return remove
	}
	return action{}
}

// allTold reports whether all sources have delivered, and pod.update has told of every pod that they want. Until then
// any mirror pod may be that of a static pod: the word of the sources comes first where the bus is empty, and podsync
// still waits for the node's facts.
func allTold(sources topic.Sources, pods map[string]*pod) bool {
	if !sources.Ready {
		return false
	}
	for _, uid := range sources.Pods {
		if p := pods[uid]; p == nil || p.update == nil {
			return false
		}
	}
	return true
}

func hashOf(static *corev1.Pod) string { return static.Annotations[annotationHash] }

// mirrorPod is the API object that stands for a static pod: owned by the Node, as NodeRestriction demands
// (KEP-1314).
func mirrorPod(static *corev1.Pod, node corev1.Node) *corev1.Pod {
	annotations := maps.Clone(static.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationMirror] = hashOf(static)
	controller := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: static.Name, Namespace: static.Namespace, Labels: static.Labels,
			Annotations: annotations,
			Finalizers:  static.Finalizers,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller,
			}},
		},
		Spec: static.Spec,
	}
}
