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

// verb is what is to be asked of the API server.
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
	pod   *corev1.Pod // to be created
}

// decide is the next request for a key; more may follow once it has been answered.
func (w *world) decide(key string, now time.Time) (action, error) {
	if uid, ok := strings.CutPrefix(key, "mirror/"); ok {
		return w.decideMirror(uid), nil
	}
	p := w.pods[key]
	switch {
	case p == nil || p.update == nil:
		return action{}, nil
	case p.update.Static():
		return w.decideStatic(key, p, now)
	case p.patch == nil || !p.watched || p.gone || p.deleted:
		// A pod that podsync's watch doesn't have is not at the API server, or pod.object is about to come.
		return action{}, nil
	}
	ref := topic.Ref{Namespace: p.update.Pod.Namespace, Name: p.update.Pod.Name, UID: key}
	a, err := p.write(ref, &p.served, now)
	a.key = key
	if err != nil || a.verb != doNothing {
		return a, err
	}
	p.changed = time.Time{}
	if p.patch.Finished && p.update.Pod.DeletionTimestamp != nil {
		return action{verb: doDelete, key: key, Ref: ref}, nil
	}
	return action{}, nil
}

// write is the request that brings the status of the API object ref, as it is known, up to date, if the API server takes it.
func (p *pod) write(ref topic.Ref, has *served, now time.Time) (action, error) {
	base := has.known()
	if base == nil {
		return action{verb: doGet, Ref: ref, since: has.version}, nil
	}
	patch, err := diff(*base, Merge(*p.patch, *p.update, p.probes, *base, now), ref.UID)
	if err != nil || patch == nil || bytes.Equal(patch, has.refused) {
		return action{}, err
	}
	return action{verb: doPatch, Ref: ref, since: has.version, patch: patch}, nil
}

// decideStatic keeps a static pod's mirror pod there and its status up to date.
func (w *world) decideStatic(key string, p *pod, now time.Time) (action, error) {
	m := w.mirrorOf(p.update.Pod)
	switch {
	case m == nil && w.wanted(key, p) && w.node.UID != "":
		ref := topic.Ref{Namespace: p.update.Pod.Namespace, Name: p.update.Pod.Name}
		return action{verb: doCreate, key: key, Ref: ref, pod: mirrorPod(p.update.Pod, w.node)}, nil
	case m == nil || m.Deleting || m.asked || m.Hash != hashOf(p.update.Pod) || p.patch == nil:
		return action{}, nil
	}
	a, err := p.write(m.Ref, &m.served, now)
	a.key = key
	if err == nil && a.verb == doNothing {
		p.changed = time.Time{}
	}
	return a, err
}

// wanted tells whether a static pod's manifest is still there.
func (w *world) wanted(uid string, p *pod) bool {
	if w.sources.Ready {
		return slices.Contains(w.sources.Pods, uid)
	}
	return p.update.Lifecycle == topic.Syncing
}

// mirrorOf is the static pod's mirror pod: the usable one while an old one is being removed.
func (w *world) mirrorOf(static *corev1.Pod) *mirror {
	var found *mirror
	for _, m := range w.mirrors {
		if m.Namespace != static.Namespace || m.Name != static.Name {
			continue
		}
		if !m.Deleting && !m.asked && m.Hash == hashOf(static) {
			return m
		}
		found = m
	}
	return found
}

// decideMirror removes a mirror pod that has no static pod any more, an outdated one, and one that somebody has
// deleted: its static pod runs on, and gets a new one.
func (w *world) decideMirror(uid string) action {
	m := w.mirrors[uid]
	if m == nil || m.asked {
		return action{}
	}
	remove := action{verb: doDelete, key: mirrorKey(uid), Ref: m.Ref}
	stopping := false
	for uid, p := range w.pods {
		if p.update == nil || !p.update.Static() || p.update.Pod.Namespace != m.Namespace || p.update.Pod.Name != m.Name {
			continue
		}
		if w.wanted(uid, p) {
			if m.Deleting || m.Hash != hashOf(p.update.Pod) {
				return remove
			}
			return action{}
		}
		stopping = stopping || p.update.Lifecycle != topic.Terminated
	}
	if w.sources.Ready && !stopping {
		return remove
	}
	return action{}
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
