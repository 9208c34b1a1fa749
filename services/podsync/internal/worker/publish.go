package worker

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/alloc"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/podstatus"
	"kubelot.dev/services/podsync/internal/qos"
	"kubelot.dev/services/podsync/internal/report"
)

// A status that tells only of a small step of a start or an end waits this long for the next: a while where the pod's turn comes
// at once, longer where pods queue for theirs. To write of each that it waits takes the API server as long as
// to write that it runs, or has ended, and all of them wait for that.
const (
	holdSmallSteps        = time.Second
	holdSmallStepsCrowded = 10 * time.Second
)

// idle is how long a worker sleeps when only news can change its plan.
const idle = time.Hour

// announceBackoff records the BackOff event when a container's crash back-off begins.
func (w *Worker) announceBackoff(p plan.Plan) {
	for name, waiting := range p.Waiting {
		if waiting.Reason != plan.ReasonCrashLoopBackOff {
			delete(w.announced, name)
			continue
		}
		if !w.announced[name] {
			w.announced[name] = true
			w.report.Event(w.Pod, report.FieldPath(w.Pod, name), corev1.EventTypeWarning, "BackOff",
				fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, w.Pod.Name, w.Pod.Namespace, w.Pod.UID))
		}
	}
}

// publish states the pod and its status on the bus.
func (w *Worker) publish(p plan.Plan, now time.Time) {
	ended := w.lifecycle == topic.Terminated
	in := podstatus.Input{
		Pod: w.Pod, Obs: w.obs, Waiting: p.Waiting, Busy: w.busy, Messages: w.messages, Previous: w.status,
		Ending: w.stop != nil, Ended: ended, Rejected: w.Reject != nil, HostIPs: w.Node.HostIPs(), RuntimeName: w.Node.RuntimeName(),
		StartTime: w.start, QOS: qos.Class(w.Pod), Now: now,
		RecursiveReadOnly: w.Node.RecursiveReadOnly(w.Pod), Before: w.before(), Cgroup: w.inCgroup(),
	}
	if w.stop != nil {
		in.Fail, in.Reason, in.Message = w.stop.fail, w.stop.reason, w.stop.message
		if w.stop.disruption != "" {
			in.Conditions = append(in.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: w.stop.disruption, Message: w.stop.disruptionMessage, ObservedGeneration: w.Pod.Generation,
			})
		}
	}
	if !ended {
		in.Conditions = append(in.Conditions, w.resizeConditions()...)
	}
	for name, failure := range w.failures {
		if _, planned := in.Waiting[name]; !planned {
			in.Waiting[name] = plan.Waiting{Reason: failure.Reason, Message: failure.Message}
		}
	}
	status := podstatus.Compute(in)
	w.status = status
	w.statePod()
	if now.Before(w.messagesDue()) {
		return
	}
	w.reportStatus(topic.PodStatus{
		Ref: topic.RefOf(w.Pod), Source: w.Source, Status: status,
		Finished: ended && w.released,
	}, now)
}

// inCgroup is what the pod's cgroup has: until a resize has reached a container, by what that has still. Of a static pod the kubelet's
// status tells what its manifest says.
func (w *Worker) inCgroup() *corev1.ResourceRequirements {
	if w.Applied == nil || w.Source != topic.SourceAPI {
		return nil
	}
	before := w.before()
	if len(before) == 0 {
		return w.Applied(w.Pod)
	}
	pod := w.Pod.DeepCopy()
	alloc.Each(&pod.Spec, func(c *corev1.Container) {
		if cur := w.newest(c.Name); cur != nil && cur.State == topic.ContainerRunning {
			if has, differs := before[cur.ID]; differs {
				c.Resources = has
			}
		}
	})
	return w.Applied(pod)
}

// reportStatus states the status at once if somebody waits for it. Small steps wait a little for the
// next one: a pod that starts at once, or ends at once, is written to the API server once.
func (w *Worker) reportStatus(s topic.PodStatus, now time.Time) {
	if w.lastIsNear(now) && !s.Finished {
		return
	}
	if limit := w.hold(s); limit > 0 {
		if w.heldSince.IsZero() {
			w.heldSince = now
		}
		if now.Sub(w.heldSince) < limit {
			return
		}
	}
	w.Meter.Stated(w.FirstSeen, &w.reported, &s.Status)
	w.heldSince, w.reported = time.Time{}, s.Status
	w.report.Status(s)
}

// lastIsNear tells whether the pod is deleted and its containers have just ended: its last status, after which it goes, is about to
// come.
func (w *Worker) lastIsNear(now time.Time) bool {
	return w.Pod.DeletionTimestamp != nil && now.Before(w.endedAt.Add(holdSmallSteps))
}

// hold is how long a status may be held.
func (w *Worker) hold(s topic.PodStatus) time.Duration {
	switch {
	case s.Finished, w.stop != nil && w.Pod.DeletionTimestamp == nil, podstatus.Urgent(w.reported, s.Status):
		return 0
	case w.Crowded != nil && w.Crowded():
		return holdSmallStepsCrowded
	}
	return holdSmallSteps
}

func (w *Worker) nextWake(p plan.Plan, now time.Time) time.Duration {
	wake := now.Add(idle)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(wake) {
			wake = t
		}
	}
	earlier(p.WakeAt)
	if due := w.messagesDue(); due.After(now) {
		earlier(due)
	}
	if w.lastIsNear(now) {
		earlier(w.endedAt.Add(holdSmallSteps))
	}
	if !w.heldSince.IsZero() {
		// Whether it is still crowded is asked every second.
		earlier(now.Add(holdSmallSteps - now.Sub(w.heldSince)%holdSmallSteps))
	}
	if w.stop == nil {
		earlier(w.deadline())
	}
	for _, failure := range w.failures {
		if failure.RetryAt.After(now) {
			earlier(failure.RetryAt)
		}
	}
	return max(wake.Sub(now), time.Millisecond)
}
