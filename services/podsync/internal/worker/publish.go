package worker

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/podstatus"
)

// A status that shows only a small step of a start or an end waits this long for the next one. While pods queue for
// their starts or ends it waits longer. A small step costs the API server as much as the status that says that the pod
// runs or has ended. With many pods, that status would wait behind the small steps of others.
const (
	holdSmallSteps        = time.Second
	holdSmallStepsCrowded = 10 * time.Second
)

// publisher states the pod and its status on the bus.
type publisher struct {
	state     *state
	actions   *actions
	report    Reporter
	computed  corev1.PodStatus // the last that was computed
	reported  corev1.PodStatus // the last that was stated
	heldSince time.Time        // since when a status has been waiting to be stated; zero if none is
	stated    stated           // what pod.update says
}

func newPublisher(s *state, a *actions, report Reporter) *publisher {
	return &publisher{
		state: s, actions: a, report: report, computed: s.Previous, reported: s.Previous,
		stated: stated{started: startedBefore(s.Pod)},
	}
}

// publish states the pod and its status on the bus.
func (b *publisher) publish(p plan.Plan, now time.Time) {
	s := b.state
	stopped := s.ending.lifecycle == topic.Terminated
	// The control plane takes back the claims of a pod in a terminal phase, and may give their devices to another pod. So
	// the phase isn't terminal as long as a driver has them prepared.
	ended := stopped && !s.holdsClaims()
	in := podstatus.Input{
		Pod: s.Pod, Obs: s.view.obs, Waiting: p.Waiting, Busy: s.containers.busy(), Messages: s.containers.messages(),
		Previous: b.computed,
		Ending:   s.ending.stop != nil, Ended: ended, Rejected: s.Reject != nil,
		StartTime: s.start, QOS: podspec.QOSClass(s.Pod),
		Node: podstatus.Node{
			HostIPs: s.Node.HostIPs(), RuntimeName: s.Node.RuntimeName(),
			RecursiveReadOnly: s.Node.RecursiveReadOnly(s.Pod),
		},
		Before: s.before(), Cgroup: b.inCgroup(), Allocation: s.allocation, AllocationUnknown: s.allocationUnknown(),
	}
	if s.ending.stop != nil {
		in.Fail, in.Reason, in.Message = s.ending.stop.fail, s.ending.stop.reason, s.ending.stop.message
		if s.ending.stop.disruption != "" {
			in.Conditions = append(in.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: s.ending.stop.disruption,
				Message: s.ending.stop.disruptionMessage, ObservedGeneration: s.Pod.Generation,
			})
		}
	}
	if !stopped {
		in.Conditions = append(in.Conditions, s.resizeConditions()...)
	}
	for name, failure := range b.actions.failures {
		// One that has ended and isn't started again waits for nothing.
		last := s.view.newest(name)
		if _, planned := in.Waiting[name]; !planned && (last == nil || last.State != topic.ContainerExited) {
			in.Waiting[name] = plan.Waiting{Reason: failure.Reason, Message: failure.Message}
		}
	}
	status := podstatus.Compute(in)
	b.computed = status
	b.statePod()
	if now.Before(s.containers.messagesDue()) {
		return
	}
	b.reportStatus(topic.PodStatus{
		Ref: topic.RefOf(s.Pod), Source: s.Source, Status: status,
		Finished: ended && s.ending.released,
	}, now)
}

// inCgroup is what the pod's cgroup has. A container that a resize hasn't reached yet counts with its resources from
// before. It is nil for a static pod: there the kubelet's status shows what the manifest says.
func (b *publisher) inCgroup() *corev1.ResourceRequirements {
	if b.state.Applied == nil || b.state.Source != topic.SourceAPI {
		return nil
	}
	before := b.state.before()
	if len(before) == 0 {
		return b.state.Applied(b.state.Pod)
	}
	pod := b.state.Pod.DeepCopy()
	for c := range podspec.InitAndMain(&pod.Spec) {
		if cur := b.state.view.newest(c.Name); cur != nil && cur.State == topic.ContainerRunning {
			if has, differs := before[cur.ID]; differs {
				c.Resources = has
			}
		}
	}
	return b.state.Applied(pod)
}

// reportStatus states the status at once if somebody waits for it. Small steps wait a little for the next one, so that
// the API server gets one status of a pod that starts or ends quickly.
func (b *publisher) reportStatus(s topic.PodStatus, now time.Time) {
	if b.lastIsNear(now) && !s.Finished {
		return
	}
	if limit := b.hold(s); limit > 0 {
		if b.heldSince.IsZero() {
			b.heldSince = now
		}
		if now.Sub(b.heldSince) < limit {
			return
		}
	}
	b.state.Metrics.Stated(b.state.Pod.UID, b.state.FirstSeen, &b.reported, &s.Status)
	b.heldSince, b.reported = time.Time{}, s.Status
	b.report.Status(s)
}

// lastIsNear reports whether the pod is deleted and its containers have just ended. Its last status comes soon.
func (b *publisher) lastIsNear(now time.Time) bool {
	return b.state.Pod.DeletionTimestamp != nil && now.Before(b.state.ending.at.Add(holdSmallSteps))
}

// hold is how long a status may be held.
func (b *publisher) hold(s topic.PodStatus) time.Duration {
	switch {
	case s.Finished, podstatus.Urgent(b.reported, s.Status),
		b.state.ending.stop != nil && b.state.Pod.DeletionTimestamp == nil:
		return 0
	case b.state.Crowded != nil && b.state.Crowded():
		return holdSmallStepsCrowded
	}
	return holdSmallSteps
}

// due is when something must be stated even if nothing changes until then; zero for never.
func (b *publisher) due(now time.Time) time.Time {
	var due time.Time
	if messages := b.state.containers.messagesDue(); messages.After(now) {
		due = messages
	}
	if b.lastIsNear(now) {
		due = earlier(due, b.state.ending.at.Add(holdSmallSteps))
	}
	if !b.heldSince.IsZero() {
		// Whether it is still crowded is asked every second.
		due = earlier(due, now.Add(holdSmallSteps-now.Sub(b.heldSince)%holdSmallSteps))
	}
	return due
}
