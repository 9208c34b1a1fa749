package status

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const (
	annotationMirror = corev1.MirrorPodAnnotationKey
	annotationHash   = "kubernetes.io/config.hash"
)

// state is everything the daemon knows. One goroutine owns it; nothing in it does I/O.
type state struct {
	pods    map[string]*pod    // by UID: the API's, or a static pod's own
	mirrors map[string]*mirror // by the mirror pod's UID
	sources topic.Sources
	node    corev1.Node
	// live is true once all retained state has been read.
	live bool
	// dirty are the keys to decide about: UIDs of pods, and mirrorKey of mirror pods.
	dirty queue
	// unsaid are the pods whose merged status may differ from what pod.status has.
	unsaid map[string]bool
}

// pod is what is known of one pod.
type pod struct {
	update *topic.Pod
	patch  *topic.PodStatus
	probes Probes
	served served
	merged merged
	// watched is true while podsync's watch has the pod.
	watched bool
	// gone: the API server has the pod no longer. deleted: this daemon has removed it.
	gone, deleted bool
	// changed is when the status to be written last changed, for the metric; zero when all is written.
	changed time.Time
	// news counts the changes of patch and probes. written is what the last write that was answered says.
	news    int
	written says
}

// mirror is a mirror pod.
type mirror struct {
	topic.MirrorPod
	served served
	// watched is true once podsync's watch has reported it. One that came and went between two lists is never reported.
	watched bool
	// asked is true once the API server has accepted its deletion. doubtful is true after the API server has found none
	// to delete, or has answered with a conflict: it is read first.
	asked, doubtful bool
}

func newState() *state {
	return &state{
		pods: map[string]*pod{}, mirrors: map[string]*mirror{}, dirty: queue{has: map[string]bool{}},
		unsaid: map[string]bool{},
	}
}

// mirrorKey is the key of a mirror pod among the keys of pods.
func mirrorKey(uid string) string { return "mirror/" + uid }

func (s *state) touch(key string) {
	if p := s.pods[key]; p != nil {
		p.merged.stale, s.unsaid[key] = true, true
	}
	s.dirty.add(key)
}

func (s *state) pod(uid string) *pod {
	p := s.pods[uid]
	if p == nil {
		p = &pod{probes: Probes{}}
		s.pods[uid] = p
	}
	s.touch(uid)
	return p
}

// forget drops a pod that has no data left.
func (s *state) forget(uid string) {
	if p := s.pods[uid]; p != nil && p.update == nil && p.patch == nil && len(p.probes) == 0 &&
		!p.watched && !p.merged.told {
		delete(s.pods, uid)
	}
}

func (s *state) setPod(uid string, u topic.Pod) {
	if u.Pod == nil {
		return
	}
	p := s.pod(uid)
	first := p.update == nil
	p.update = &u
	switch {
	case first && slices.Contains(s.sources.Pods, uid):
		// It may be the last one that all mirror pods wait for.
		s.touchAllStatic()
	case u.Static():
		s.touchMirrorsOf(u.Pod.Namespace, u.Pod.Name)
	}
}

// setObject takes in what podsync's watch has seen of the pod's status. It may be older than this daemon's last write,
// or its last reading.
func (s *state) setObject(uid string, o topic.APIPod) {
	p := s.pod(uid)
	first := !p.watched
	p.watched = true
	if !p.served.observe(o.ResourceVersion, o.Status) {
		return
	}
	p.gone, p.deleted = false, p.deleted && p.served.sure
	if first && s.live && fresh(o.Status) {
		p.served.sure = true
	}
}

// dropObject takes note that the API server has the pod no longer. One that it has again was restored.
func (s *state) dropObject(uid string) {
	p := s.pod(uid)
	p.served, p.watched, p.gone, p.deleted = served{}, false, false, false
	s.forget(uid)
}

// forgetRefused has the patches that were answered and have changed nothing sent again, where they are wanted still.
func (s *state) forgetRefused() {
	for uid, p := range s.pods {
		if p.served.refused != nil {
			p.served.refused = nil
			s.touch(uid)
		}
	}
	for _, m := range s.mirrors {
		if m.served.refused != nil {
			m.served.refused = nil
			s.touchStatic(m.Namespace, m.Name)
		}
	}
}

func (s *state) dropPod(uid string) {
	p := s.pod(uid)
	if u := p.update; u != nil && u.Static() {
		s.touchMirrorsOf(u.Pod.Namespace, u.Pod.Name)
	}
	p.update = nil
	s.forget(uid)
}

func (s *state) setPatch(uid string, v topic.PodStatus, at time.Time) {
	p := s.pod(uid)
	p.patch = &v
	p.news++
	if p.changed.IsZero() {
		p.changed = at
	}
	if v.Source != topic.SourceAPI {
		s.touchMirrorsOf(v.Namespace, v.Name)
	}
}

func (s *state) dropPatch(uid string) {
	s.pod(uid).patch = nil
	s.forget(uid)
}

func (s *state) setProbe(key string, v topic.Probe) {
	k, ok := topic.ParseProbeKey(key)
	if !ok {
		return
	}
	p := s.pod(k.UID)
	if p.probes[k.Container] == nil {
		p.probes[k.Container] = map[string]topic.Probe{}
	}
	p.probes[k.Container][k.Kind] = v
	p.news++
}

func (s *state) dropProbe(key string) {
	k, ok := topic.ParseProbeKey(key)
	if !ok {
		return
	}
	p := s.pod(k.UID)
	p.news++
	delete(p.probes[k.Container], k.Kind)
	if len(p.probes[k.Container]) == 0 {
		delete(p.probes, k.Container)
	}
	s.forget(k.UID)
}

// setMirror takes in what podsync's watch has seen of a mirror pod.
func (s *state) setMirror(uid string, m topic.MirrorPod) { s.mirror(uid, m).watched = true }

// mirror is the mirror pod with that UID, which is as m says.
func (s *state) mirror(uid string, m topic.MirrorPod) *mirror {
	known := s.mirrors[uid]
	if known == nil {
		known = &mirror{}
		s.mirrors[uid] = known
	}
	known.MirrorPod = m
	known.UID = uid
	last := known.served.seen
	known.served.observe(m.ResourceVersion, m.Status)
	if known.served.seen < last {
		known.asked = false // an API server that was restored has the mirror pod as it was before its deletion
	}
	s.touch(mirrorKey(uid))
	s.touchStatic(m.Namespace, m.Name)
	return known
}

func (s *state) dropMirror(uid string) {
	m := s.mirrors[uid]
	if m == nil {
		return
	}
	delete(s.mirrors, uid)
	s.touchStatic(m.Namespace, m.Name)
}

func (s *state) setSources(v topic.Sources) {
	s.sources = v
	s.touchAllStatic()
}

func (s *state) setNode(n corev1.Node) {
	if s.node.UID == n.UID && s.node.Name == n.Name && owns(s.node) == owns(n) {
		return
	}
	s.node = corev1.Node{ObjectMeta: n.ObjectMeta}
	s.touchAllStatic()
}

func (s *state) touchStatic(namespace, name string) {
	for uid, p := range s.pods {
		if p.update != nil && p.update.Static() && p.update.Pod.Namespace == namespace && p.update.Pod.Name == name {
			s.touch(uid)
		}
	}
}

func (s *state) touchMirrorsOf(namespace, name string) {
	for uid, m := range s.mirrors {
		if m.Namespace == namespace && m.Name == name {
			s.touch(mirrorKey(uid))
		}
	}
}

func (s *state) touchAllStatic() {
	for uid, p := range s.pods {
		if p.update != nil && p.update.Static() {
			s.touch(uid)
		}
	}
	for uid := range s.mirrors {
		s.touch(mirrorKey(uid))
	}
}
