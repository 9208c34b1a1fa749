package volume

import (
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// The reasons of volumes that can't be set up, the kubelet's, and of those that can't be removed.
const (
	reasonFailedMount   = "FailedMount"
	reasonFailedUnmount = "FailedUnmount"
)

// publish sends the state of a pod that was touched.
func (s *Service) publish(p *pod) {
	if !p.touched {
		return
	}
	p.touched = false
	if p.update.Pod == nil {
		return
	}
	if err := s.ports.State.Set(p.ref.UID, summary(p)); err != nil {
		s.log.Error("can't publish the state of a pod's volumes", "uid", p.ref.UID, "error", err)
	}
}

// reportHealth reports whether volumes hang.
func (s *Service) reportHealth() {
	if s.hung > 0 {
		s.ports.Health.Set(topic.Degraded,
			fmt.Sprintf("%d volumes hang on filesystems that do not answer; volume.state names them", s.hung))
		return
	}
	s.ports.Health.Set(topic.Healthy, "")
}

// fail records why a volume's worker failed, and warns of it, also by an Event while the pod is starting. The same is
// said more and more seldom, however often the volume is tried.
func (s *Service) fail(p *pod, v *volume, reason, what string) {
	starting := v.phase != topic.VolumeMounted
	v.problem, v.reason, p.touched = what+v.attacher(), reason, true
	log := s.log.With("namespace", p.ref.Namespace, "pod", p.ref.Name, "uid", p.ref.UID, "volume", v.spec.Name)
	if starting && v.isOnItsWay(s.now()) {
		v.phase = topic.VolumePending
		log.Info("volume is waited for", "error", what)
		return
	}
	if starting {
		v.phase = topic.VolumeFailed
	}
	if !v.told.due(what, s.now()) {
		return
	}
	log.Warn("volume failed, retrying", "error", what)
	if s.stage(p) == topic.Syncing {
		s.ports.Events.Record(topic.Event{Kind: "Pod", Ref: p.ref, Type: "Warning", Reason: reason, Message: what})
	}
}

// waitsLong is how long a volume that others are at work for is waited for without an Event, the kubelet's.
const waitsLong = 2*time.Minute + 3*time.Second

// isOnItsWay reports whether the volume is only waited for, and not for long yet.
func (v *volume) isOnItsWay(now time.Time) bool {
	return v.onItsWay && now.Sub(v.wanted) < waitsLong
}

// failureOf is what a plugin says of a failure; nothing of any other error.
func failureOf(err error) plugin.Failure {
	var failure *plugin.Failure
	if errors.As(err, &failure) {
		return *failure
	}
	return plugin.Failure{}
}

// attached takes that the driver is to attach the volume; empty if nothing of the kind is waited for any more.
func (w *waiting) attached(by string, now time.Time) {
	switch {
	case by == "":
		w.attaching = nil
	case w.attaching == nil || w.attaching.Driver != by:
		w.attaching = &topic.DriverCall{Driver: by, Call: topic.CallAttach, Since: now}
	}
}

// attacher says which driver is to attach the volume, in addition to the kubelet's words.
func (w *waiting) attacher() string {
	if w.attaching == nil {
		return ""
	}
	return fmt.Sprintf(" (driver %s, since %s)", w.attaching.Driver, clock(w.attaching.Since))
}

// clock is a time of day for messages.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// called takes that the volume's worker calls a driver, or by nil that the call has ended, and reports whether
// something else is to be said of the volume.
func called(v *volume, call *topic.DriverCall) bool {
	if v.op == opNone {
		return false // it has ended meanwhile
	}
	v.calling = call
	if !v.slow || v.late {
		return false
	}
	v.problem = takesLong(v)
	return true
}

// takesLong says what a volume that takes long waits for.
func takesLong(v *volume) string {
	if v.calling != nil {
		return fmt.Sprintf("volume %q: %s", v.spec.Name, plugin.Waits(v.calling))
	}
	return fmt.Sprintf("volume %q: the %s takes longer than %s", v.spec.Name, v.op, slowAfter)
}

// waitedFor is the longest pause where another daemon is waited for, and it costs little to look.
const waitedFor = 2 * time.Second

// longestPause is the longest pause after such failures; 0 means the kubelet's.
func longestPause(kind plugin.Kind, err error) time.Duration {
	switch f := failureOf(err); {
	case f.Costly:
		return 0
	case f.OnItsWay && kind.LastPause == 0:
		return waitedFor
	}
	return kind.LastPause
}

// failedMount and failedUnmount word a failure as the kubelet does.
func failedMount(volume string, err error) (reason, message string) {
	var failure *plugin.Failure
	if errors.As(err, &failure) {
		return failure.Reason, err.Error()
	}
	return reasonFailedMount, fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", volume, err)
}

func failedUnmount(volume string, err error) string {
	return fmt.Sprintf("UnmountVolume.TearDown failed for volume %q : %v", volume, err)
}

// reportSlow reports a worker that takes long, most often because a filesystem doesn't answer.
func (s *Service) reportSlow(p *pod, v *volume) {
	now := s.now()
	switch {
	case v.op == opNone:
	case now.Sub(v.alive) >= lateAfter && !v.late:
		v.late = true
		s.hung++
		s.fail(p, v, reasonFailedMount, fmt.Sprintf("volume %q: the %s that began at %s has not come back; a filesystem "+
			"below it does not answer, and a "+
			"system call that waits for it can't be cancelled. It goes on once the filesystem answers, or is unmounted by "+
			"force (umount -f)",
			v.spec.Name, v.op, clock(v.since)))
	case now.Sub(v.since) >= slowAfter && !v.slow:
		v.slow, p.touched = true, true
		v.reason = reasonFailedMount
		v.problem = takesLong(v)
		s.log.Warn("volume takes a long time", "namespace", p.ref.Namespace, "pod", p.ref.Name, "uid", p.ref.UID,
			"volume", v.spec.Name, "operation", v.op, "error", v.problem)
	}
}
