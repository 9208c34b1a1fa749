package volume

import (
	"slices"
	"time"

	"kubelot.dev/bus/topic"
)

const (
	// slowAfter is when a volume that takes long is reported; opTimeout when its worker is told to stop, and
	// lateAfter when a worker that has not stopped counts as hung.
	slowAfter = 10 * time.Second
	opTimeout = 2 * time.Minute
	lateAfter = opTimeout + 5*time.Second
)

// lifecycle is how far the pod is, by what podsync says of it and of all its sources. A pod without a
// pod.update has terminated only once every source has disowned it.
func lifecycle(p *pod, disowned bool) topic.Lifecycle {
	switch {
	case p.gone && disowned:
		return topic.Terminated
	case p.update.Pod == nil:
		return topic.Terminating
	}
	return p.update.Lifecycle
}

// next is what to do with a volume now.
func (v *volume) next(p *pod, stage topic.Lifecycle, now time.Time) op {
	if v.op != opNone || now.Before(v.retry.notBefore) {
		return opNone
	}
	stale := v.dirty || (!v.result.RefreshAt.IsZero() && !now.Before(v.result.RefreshAt))
	switch {
	case stage == topic.Terminated && v.phase != topic.VolumeUnmounted && len(p.binds) == 0:
		return opUnmount
	case stage != topic.Terminated && stale && !p.cleaningUp:
		return opMount
	}
	return opNone
}

// retryFailed ends the pauses of what has failed, because a plugin came, or of the volumes that wait to be attached,
// because the Node's lists have changed. What is being tried isn't held up if it fails now.
func retryFailed(pods map[string]*pod, changed map[*pod]bool, onlyAttaching bool) {
	for _, p := range pods {
		if !onlyAttaching && (p.problem != "" || p.cleaningUp) {
			p.retry.wake()
			changed[p] = true
		}
		for _, v := range p.volumes {
			if v.op != opNone || v.unattached || !onlyAttaching && v.problem != "" {
				v.retry.wake()
				changed[p] = true
			}
			// The driver may want by now that it is published again and again.
			if !onlyAttaching && v.phase == topic.VolumeMounted && v.result.RefreshAt.IsZero() &&
				(v.spec.CSI != nil || v.persistent != "") {
				v.dirty, changed[p] = true, true
			}
		}
	}
}

// cleanUpNow reports whether what is left of a terminated pod's volumes must be removed now.
func (p *pod) cleanUpNow(stage topic.Lifecycle, now time.Time) bool {
	if stage != topic.Terminated || p.cleaningUp || p.cleanedUp || len(p.binds) > 0 || now.Before(p.retry.notBefore) {
		return false
	}
	return !slices.ContainsFunc(p.volumes, func(v *volume) bool {
		return v.op != opNone || v.phase != topic.VolumeUnmounted
	})
}

// wakeAt is when a pod needs attention again if nothing happens before; zero means never.
func (p *pod) wakeAt(stage topic.Lifecycle, now time.Time) time.Time {
	var at time.Time
	earliest := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	earliest(p.retry.notBefore)
	for _, v := range p.volumes {
		earliest(v.retry.notBefore)
		if v.op != opNone {
			earliest(v.since.Add(slowAfter))
			earliest(v.alive.Add(lateAfter))
		} else if stage != topic.Terminated {
			earliest(v.result.RefreshAt)
		}
	}
	return at
}

// remains stands in volume.state for what is on disk besides the volumes of the pod's spec.
const remains = "(remains on disk)"

// summary is what volume.state says of a pod.
func summary(p *pod) topic.PodVolumes {
	s := topic.PodVolumes{Ref: p.ref, Volumes: map[string]topic.Volume{}}
	phases := map[topic.VolumePhase]int{}
	for _, v := range p.volumes {
		s.Volumes[v.spec.Name] = describe(v)
		phases[v.phase]++
	}
	if p.problem != "" {
		s.Volumes[remains] = topic.Volume{Phase: topic.VolumeFailed, Reason: reasonFailedUnmount, Message: p.problem}
	}
	switch {
	case phases[topic.VolumeFailed] > 0 || p.problem != "":
		s.Phase = topic.VolumeFailed
	case p.cleanedUp:
		s.Phase = topic.VolumeUnmounted
	case p.update.Lifecycle != topic.Terminated && phases[topic.VolumeMounted] == len(p.volumes):
		s.Phase = topic.VolumeMounted
	default:
		s.Phase = topic.VolumePending
	}
	return s
}

func describe(v *volume) topic.Volume {
	d := topic.Volume{Phase: v.phase, Message: v.problem}
	if d.Doing = v.attaching; v.slow && v.calling != nil && v.calling.Driver != "" {
		d.Doing = v.calling
	}
	switch {
	case v.problem == "":
		d.Message = v.result.Warning
	case v.unmounting:
		d.Reason = reasonFailedUnmount
	default:
		d.Reason = v.reason
	}
	if v.phase == topic.VolumeMounted {
		d.HostPath, d.Image = v.result.HostPath, v.result.Image
		d.Device, d.PersistentVolume = v.result.Device, v.result.PersistentVolume
		d.Measured, d.Size, d.HostIDs = v.result.Measured, v.result.Size, v.result.HostIDs
		d.ReadOnly, d.SELinuxRelabel, d.SupplementalGroup = v.result.ReadOnly, v.result.SELinuxRelabel,
			v.result.SupplementalGroup
	}
	return d
}
