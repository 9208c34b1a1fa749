package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/tree"
	"kubelot.dev/services/volume/internal/plugin"
)

func (s *Service) stage(p *pod) topic.Lifecycle {
	return lifecycle(p, s.sources.Ready && !s.listed[p.ref.UID])
}

// podUpdate takes what podsync says of a pod.
func (s *Service) podUpdate(c bus.Change[topic.Pod]) {
	switch p := s.pods[c.Key]; {
	case c.Synced:
		s.synced.pods = true
	case c.Deleted && p != nil:
		p.gone = true
		s.changed[p] = true
	case c.Deleted, c.Key == "": // a channel that is closed delivers empty changes
	case !valid(c):
		s.log.Warn("ignoring a pod.update without a usable pod", "uid", c.Key)
	case p == nil, p.update.Pod == nil, p.cleanedUp && c.Value.Lifecycle != topic.Terminated:
		s.adopt(c.Value)
	default:
		s.refresh(p, c.Value)
	}
}

// valid refuses a pod whose names would lead out of the pods' directory.
func valid(c bus.Change[topic.Pod]) bool {
	if c.Value.Pod == nil || string(c.Value.Pod.UID) != c.Key || !plainName(c.Key) {
		return false
	}
	for i := range c.Value.Pod.Spec.Volumes {
		if !plainName(c.Value.Pod.Spec.Volumes[i].Name) {
			return false
		}
	}
	return true
}

// adopt begins with a pod that is new to this daemon. Mounting finds out what exists already. If a clean-up of the same
// directory still runs, mounting waits for it: the clean-up belongs to the old entry.
func (s *Service) adopt(update topic.Pod) {
	uid := string(update.Pod.UID)
	p := newPod(update, s.root, s.kinds, s.before[uid])
	delete(s.before, uid)
	if old := s.pods[p.ref.UID]; old != nil {
		s.forget(old)
		p.cleaningUp = old.cleaningUp
	}
	s.pods[p.ref.UID], s.changed[p] = p, true
	s.follow(p, p.volumes)
}

// follow has the objects of the pod's volumes watched.
func (s *Service) follow(p *pod, volumes []*volume) {
	for _, v := range volumes {
		for _, o := range v.objects {
			if s.users[o] == nil {
				s.users[o] = map[*volume]*pod{}
			}
			s.users[o][v] = p
		}
	}
	s.hold(p)
}

// refresh takes a new state of a known pod.
func (s *Service) refresh(p *pod, update topic.Pod) {
	changed := !sameForVolumes(p.update.Pod, update.Pod)
	ended := update.Lifecycle == topic.Terminated && p.update.Lifecycle != topic.Terminated
	revived := update.Lifecycle != topic.Terminated && p.update.Lifecycle == topic.Terminated
	p.update, p.gone, p.touched = update, false, p.touched || revived
	s.changed[p] = true
	if added := p.addVolumes(s.root, s.kinds, topic.PodVolumes{}); len(added) > 0 {
		s.follow(p, added)
		p.touched = true
	}
	for _, v := range p.volumes {
		switch {
		case ended:
			v.retry, v.problem = retry{}, ""
			if v.cancel != nil {
				v.cancel(plugin.ErrTerminated)
			}
		case revived, changed && v.followsPod:
			v.dirty, v.retry = true, retry{}
		}
		if revived && v.phase == topic.VolumeUnmounted {
			v.phase = topic.VolumePending
		}
	}
}

// sameForVolumes reports whether nothing has changed that the downward API shows.
func sameForVolumes(a, b *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec.Containers, b.Spec.Containers) &&
		equality.Semantic.DeepEqual(a.Spec.InitContainers, b.Spec.InitContainers)
}

// hold has the pod's objects watched; linger in the cache spares a new watch for the namespace's next pod.
func (s *Service) hold(p *pod) {
	var configMaps, secrets []types.NamespacedName
	for _, v := range p.volumes {
		for _, o := range v.objects {
			if o.secret {
				secrets = append(secrets, o.key)
			} else {
				configMaps = append(configMaps, o.key)
			}
		}
	}
	s.ports.ConfigMaps.Hold(p.ref.UID, configMaps...)
	s.ports.Secrets.Hold(p.ref.UID, secrets...)
}

// forget drops a pod; its objects are watched no longer.
func (s *Service) forget(p *pod) {
	delete(s.pods, p.ref.UID)
	delete(s.changed, p)
	s.agenda.Remove(p)
	s.ports.Metrics.forget(p)
	s.release(p)
}

func (s *Service) release(p *pod) {
	for _, v := range p.volumes {
		for _, o := range v.objects {
			delete(s.users[o], v)
			if len(s.users[o]) == 0 {
				delete(s.users, o)
			}
		}
	}
	s.ports.ConfigMaps.Hold(p.ref.UID)
	s.ports.Secrets.Hold(p.ref.UID)
}

func (s *Service) sourcesUpdate(c bus.Change[topic.Sources]) {
	if c.Synced {
		s.synced.sources = true
		return
	}
	s.sources, s.listed = c.Value, make(map[string]bool, len(c.Value.Pods))
	for _, uid := range c.Value.Pods {
		s.listed[uid] = true
	}
	for _, p := range s.pods {
		if p.gone { // what the others are to do doesn't depend on their sources
			s.changed[p] = true
		}
	}
}

func (s *Service) nodeUpdate(c bus.Change[corev1.Node]) {
	if c.Synced {
		s.synced.node = true
		return
	}
	if c.Deleted {
		return
	}
	s.nodeLabels = c.Value.Labels
	if s.ports.CSI != nil && s.ports.CSI.Attached.SetNode(c.Value.Status) {
		retryFailed(s.pods, s.changed, true)
	}
	if equality.Semantic.DeepEqual(s.allocatable, c.Value.Status.Allocatable) {
		return
	}
	s.allocatable = c.Value.Status.Allocatable
	for _, p := range s.pods {
		for _, v := range p.volumes {
			if v.followsNode {
				v.dirty, v.retry = true, retry{}
				s.changed[p] = true
			}
		}
	}
}

// objectChanged has every volume that is made from the object written again, at once.
func (s *Service) objectChanged(o object) {
	for v, p := range s.users[o] {
		v.dirty, v.retry = true, retry{}
		s.changed[p] = true
	}
}

// advance looks at the pods of which something is new, or due by now.
func (s *Service) advance(ctx context.Context) {
	now := s.now()
	for p, ok := s.agenda.Take(now); ok; p, ok = s.agenda.Take(now) {
		s.changed[p] = true
	}
	for p := range s.changed {
		s.look(ctx, p)
	}
	clear(s.changed)
	s.findLeftovers(ctx, now)
	freeDisks(ctx, s, now)
}

// look starts every worker that the pod wants by now, publishes it, and drops it if it is done.
func (s *Service) look(ctx context.Context, p *pod) {
	now, stage := s.now(), s.stage(p)
	for _, v := range p.volumes {
		s.reportSlow(p, v)
		switch v.next(p, stage, now) {
		case opMount:
			v.dirty = false
			if v.wanted.IsZero() {
				v.wanted = now
			}
			s.start(ctx, p, v, opMount, s.mountJob(p, v, stage))
		case opUnmount:
			s.ports.Labels.Leave(p.ref.UID, v.spec.Name)
			s.start(ctx, p, v, opUnmount, s.unmountJob(p, v))
		}
	}
	if p.cleanUpNow(stage, now) {
		p.cleaningUp = true
		s.start(ctx, p, nil, opUnmount, s.cleanUpJob(p))
	}
	if p.gone && p.cleanedUp && !p.cleaningUp {
		s.drop(p)
		return
	}
	s.publish(p)
	s.ports.Metrics.count(p)
	if at := p.wakeAt(stage, now); at.IsZero() {
		s.agenda.Remove(p)
	} else {
		s.agenda.Set(p, at)
	}
}

func (s *Service) drop(p *pod) {
	s.forget(p)
	if err := s.ports.State.Delete(p.ref.UID); err != nil {
		s.log.Error("can't remove the state of a pod's volumes", "uid", p.ref.UID, "error", err)
	}
}

// start runs a job in a goroutine of its own. It is told to stop when it has given no sign of life for opTimeout.
func (s *Service) start(ctx context.Context, p *pod, v *volume, what op, do job) {
	if v != nil {
		v.retry.begin()
	} else {
		p.retry.begin()
	}
	ctx, stop := context.WithCancelCause(ctx)
	timer := time.AfterFunc(opTimeout, func() { stop(fmt.Errorf("it was not done after %s", opTimeout)) })
	alive := func() { timer.Reset(opTimeout) }
	if v != nil {
		v.op, v.since, v.alive, v.cancel = what, s.now(), s.now(), stop
		v.slow, v.late, v.unmounting = false, false, what == opUnmount
		ctx = plugin.Watched(ctx, p.ref.Namespace+"/"+p.ref.Name, func(call *topic.DriverCall) {
			s.tell(func() {
				if called(v, call) {
					p.touched = true
					s.changedIfThere(p)
				}
			})
		})
		alive = func() {
			timer.Reset(opTimeout)
			s.tell(func() { v.alive = s.now() })
		}
	}
	ctx = tree.WithProgress(ctx, alive)
	s.workers.Go(func() {
		o := outcome{pod: p, volume: v, op: what}
		o.result, o.err = do(ctx, alive)
		timer.Stop()
		stop(nil)
		//nolint:contextcheck // a rejection goes on after the worker, for rejectTimeout at most
		s.tell(func() { s.finished(o) })
	})
}

// finished takes a worker's answer.
func (s *Service) finished(o outcome) {
	p, v := o.pod, o.volume
	s.changedIfThere(p)
	// Of a pod that goes, only the end is news, or what keeps it from coming.
	p.touched = p.touched || o.op == opMount || o.err != nil || v == nil || p.slow()
	if v == nil {
		s.cleanUpFinished(p, o.err)
		return
	}
	s.ports.Metrics.done(v, o, s.now())
	s.idle(v)
	switch {
	case o.err == nil:
		v.problem, v.retry, v.told, v.attaching = "", retry{}, told{}, nil
		v.result, v.phase = o.result, topic.VolumeMounted
		if o.op == opUnmount {
			v.phase, v.persistent = topic.VolumeUnmounted, ""
		}
		if o.result.Warning != "" {
			s.log.Warn("volume is out of date", "namespace", p.ref.Namespace, "pod", p.ref.Name, "uid", p.ref.UID,
				"volume", v.spec.Name, "error", o.result.Warning)
		}
	case s.stage(p) == topic.Terminated && o.op == opMount, errors.Is(o.err, plugin.ErrNotMounted):
		// Nothing is brought up to date any more, or the volume would be due again at once.
		v.problem, v.result.RefreshAt = "", time.Time{}
	case o.op == opUnmount:
		v.retry.fail(s.now(), 0)
		s.fail(p, v, reasonFailedUnmount, failedUnmount(v.spec.Name, o.err))
	default:
		v.dirty = true
		failure := failureOf(o.err)
		v.onItsWay, v.unattached = failure.OnItsWay, failure.Unattached
		v.attached(failure.Attacher, s.now())
		v.retry.fail(s.now(), longestPause(v.kind, o.err))
		if o.result != (plugin.Result{}) {
			v.result, v.phase = o.result, topic.VolumeMounted
		} else if v.phase != topic.VolumeMounted {
			v.persistent = ""
		}
		reason, message := failedMount(v.spec.Name, o.err)
		s.fail(p, v, reason, message)
		rejectExhausted(s, p, v, o.err)
	}
}

// idle takes note that the volume has no worker any more.
func (s *Service) idle(v *volume) {
	v.op, v.cancel, v.calling = opNone, nil, nil
	if v.late {
		v.late = false
		s.hung--
	}
}

// changedIfThere has the pod looked at unless another has taken its place.
func (s *Service) changedIfThere(p *pod) {
	if s.pods[p.ref.UID] == p {
		s.changed[p] = true
	}
}

func (s *Service) cleanUpFinished(p *pod, err error) {
	p.cleaningUp, p.problem = false, ""
	current := s.pods[p.ref.UID]
	if current != nil {
		// A pod of the same UID that came meanwhile has waited for this.
		current.cleaningUp = false
		s.changed[current] = true
	}
	switch {
	case err != nil:
		p.problem = err.Error()
		p.retry.fail(s.now(), 0)
		s.log.Warn("can't remove what is left of a pod's volumes, retrying",
			"namespace", p.ref.Namespace, "pod", p.ref.Name,
			"uid", p.ref.UID, "error", err)
	case current == p && s.stage(p) == topic.Terminated:
		p.cleanedUp, p.retry = true, retry{}
		if p.update.Pod == nil {
			s.ports.Metrics.orphans.Inc()
		}
		s.release(p)
	}
}
