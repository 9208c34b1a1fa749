package status

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const (
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationHash   = "kubernetes.io/config.hash"
)

// world is everything the daemon knows. One goroutine owns it; nothing in it does I/O.
type world struct {
	pods    map[string]*pod    // by UID: the API's, or a static pod's own
	mirrors map[string]*mirror // by the mirror pod's UID
	sources topic.Sources
	node    corev1.Node
	// live is true once all retained state has been read.
	live bool
	// dirty are the keys (see keyOf) to decide about, oldest first.
	dirty   []string
	isDirty map[string]bool
}

// pod is what is known of one pod.
type pod struct {
	update *topic.Pod
	patch  *topic.PodStatus
	probes Probes
	served served
	// watched tells that podsync's watch has the pod.
	watched bool
	// gone: the API server has the pod no longer. deleted: this daemon has removed it.
	gone, deleted bool
	// changed is when the status to be written last changed, for the metric; zero when all is written.
	changed time.Time
}

// mirror is a mirror pod.
type mirror struct {
	topic.MirrorPod
	served served
	// asked is true once this daemon has asked for its deletion.
	asked bool
}

func newWorld() *world {
	return &world{pods: map[string]*pod{}, mirrors: map[string]*mirror{}, isDirty: map[string]bool{}}
}

// mirrorKey is the key of a mirror pod among the keys of pods.
func mirrorKey(uid string) string { return "mirror/" + uid }

func (w *world) touch(key string) {
	if !w.isDirty[key] {
		w.isDirty[key] = true
		w.dirty = append(w.dirty, key)
	}
}

// take is the oldest dirty key that ok accepts, or "".
func (w *world) take(ok func(key string) bool) string {
	for i, key := range w.dirty {
		if ok(key) {
			w.dirty = append(w.dirty[:i:i], w.dirty[i+1:]...)
			delete(w.isDirty, key)
			return key
		}
	}
	return ""
}

func (w *world) pod(uid string) *pod {
	p := w.pods[uid]
	if p == nil {
		p = &pod{probes: Probes{}}
		w.pods[uid] = p
	}
	w.touch(uid)
	return p
}

// forget drops a pod of which nothing is known any more.
func (w *world) forget(uid string) {
	if p := w.pods[uid]; p != nil && p.update == nil && p.patch == nil && len(p.probes) == 0 && !p.watched {
		delete(w.pods, uid)
	}
}

func (w *world) setPod(uid string, u topic.Pod) {
	if u.Pod == nil {
		return
	}
	w.pod(uid).update = &u
	if u.Static() {
		w.touchMirrorsOf(u.Pod.Namespace, u.Pod.Name)
	}
}

// setObject takes in what podsync's watch has seen of the pod's status. It may be older than this daemon's last write, or its
// last reading.
func (w *world) setObject(uid string, o topic.APIPod) {
	p := w.pod(uid)
	first := !p.watched
	p.watched = true
	if !p.served.watched(o.ResourceVersion, o.Status) {
		return
	}
	p.gone, p.deleted = false, p.deleted && p.served.sure
	if first && w.live && fresh(o.Status) {
		p.served.sure = true
	}
}

// dropObject takes note that the API server has the pod no longer. One that it has again was restored.
func (w *world) dropObject(uid string) {
	p := w.pod(uid)
	p.served, p.watched, p.gone, p.deleted = served{}, false, false, false
	w.forget(uid)
}

// forgetRefused has the patches that were answered and have changed nothing sent again, where they are wanted still.
func (w *world) forgetRefused() {
	for uid, p := range w.pods {
		if p.served.refused != nil {
			p.served.refused = nil
			w.touch(uid)
		}
	}
	for _, m := range w.mirrors {
		if m.served.refused != nil {
			m.served.refused = nil
			w.touchStatic(m.Namespace, m.Name)
		}
	}
}

func (w *world) dropPod(uid string) {
	p := w.pod(uid)
	if u := p.update; u != nil && u.Static() {
		w.touchMirrorsOf(u.Pod.Namespace, u.Pod.Name)
	}
	p.update = nil
	w.forget(uid)
}

func (w *world) setPatch(uid string, s topic.PodStatus, at time.Time) {
	p := w.pod(uid)
	p.patch = &s
	if p.changed.IsZero() {
		p.changed = at
	}
	if s.Source != topic.SourceAPI {
		w.touchMirrorsOf(s.Namespace, s.Name)
	}
}

func (w *world) dropPatch(uid string) {
	w.pod(uid).patch = nil
	w.forget(uid)
}

func (w *world) setProbe(uid, container, kind string, v topic.Probe) {
	p := w.pod(uid)
	if p.probes[container] == nil {
		p.probes[container] = map[string]topic.Probe{}
	}
	p.probes[container][kind] = v
}

func (w *world) dropProbe(uid, container, kind string) {
	p := w.pod(uid)
	delete(p.probes[container], kind)
	if len(p.probes[container]) == 0 {
		delete(p.probes, container)
	}
	w.forget(uid)
}

func (w *world) setMirror(uid string, m topic.MirrorPod) {
	known := w.mirrors[uid]
	if known == nil {
		known = &mirror{}
		w.mirrors[uid] = known
	}
	known.MirrorPod = m
	known.UID = uid
	known.served.watched(m.ResourceVersion, m.Status)
	w.touch(mirrorKey(uid))
	w.touchStatic(m.Namespace, m.Name)
}

func (w *world) dropMirror(uid string) {
	m := w.mirrors[uid]
	if m == nil {
		return
	}
	delete(w.mirrors, uid)
	w.touchStatic(m.Namespace, m.Name)
}

func (w *world) setSources(s topic.Sources) {
	w.sources = s
	w.touchAllStatic()
}

func (w *world) setNode(n corev1.Node) {
	if w.node.UID == n.UID && w.node.Name == n.Name {
		return
	}
	w.node = corev1.Node{ObjectMeta: n.ObjectMeta}
	w.touchAllStatic()
}

func (w *world) touchStatic(namespace, name string) {
	for uid, p := range w.pods {
		if p.update != nil && p.update.Static() && p.update.Pod.Namespace == namespace && p.update.Pod.Name == name {
			w.touch(uid)
		}
	}
}

func (w *world) touchMirrorsOf(namespace, name string) {
	for uid, m := range w.mirrors {
		if m.Namespace == namespace && m.Name == name {
			w.touch(mirrorKey(uid))
		}
	}
}

func (w *world) touchAllStatic() {
	for uid, p := range w.pods {
		if p.update != nil && p.update.Static() {
			w.touch(uid)
		}
	}
	for uid := range w.mirrors {
		w.touch(mirrorKey(uid))
	}
}
