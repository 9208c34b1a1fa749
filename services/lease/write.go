package lease

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
)

const (
	// writeRetryFirst and writeRetryMax bound the delay after a failed registration or report.
	writeRetryFirst = 100 * time.Millisecond
	writeRetryMax   = 7 * time.Second
	// turnEvery is how often conditions that have changed are reported at once, beyond the first turnBurst: whoever else
	// writes them, such as another machine with the same name, writes at once too.
	turnEvery, turnBurst = time.Second, 5
)

// evaluate publishes or writes the Node where that is due, and returns after what time to come again at the latest.
func (s *Service) evaluate(ctx context.Context, now time.Time) time.Duration {
	period := s.env.Config.Kubelet.NodeStatusUpdateFrequency.Duration
	if s.facts.Machine == nil && s.node == nil {
		// Without its machine there is no Node to speak of; the message from the stats daemon wakes this loop.
		return period
	}
	s.facts.Now = now
	s.rebooted()
	wanted := s.wanted()
	s.metrics.wanted(wanted.Status.Conditions)
	s.offer(wanted)
	if s.api == nil {
		s.env.Health.Set(topic.Healthy, "standalone: the Node is not registered anywhere")
		return period
	}
	period = min(period, s.reconcileCSINode(ctx, now))
	switch {
	case s.writes.underway:
		return period
	case now.Before(s.writes.retry):
		return s.writes.retry.Sub(now)
	case s.node == nil && !s.registered && s.looked && s.env.Config.RegisterNode:
		s.metrics.attempt()
		s.write(ctx, func() answer { return s.register(ctx, wanted) })
	case s.node != nil && s.unread == 0 && s.due(wanted, now):
		s.writes.computed = now
		s.writes.turns.pay(now)
		s.report(ctx, wanted)
	case !s.writes.turns.may(now):
		return turnEvery
	}
	return period
}

// turns bounds how often conditions that have changed are reported at once.
type turns struct {
	paid time.Time // when the reports so far would be over at one each turnEvery
}

// may reports whether a change of conditions may be reported at once.
func (t *turns) may(now time.Time) bool { return t.paid.Sub(now) < turnBurst*turnEvery }

// pay counts a report.
func (t *turns) pay(now time.Time) { t.paid = now.Add(max(0, t.paid.Sub(now)) + turnEvery) }

// wanted is the Node as it should be.
func (s *Service) wanted() *corev1.Node {
	return build(s.env.Config, s.facts, cmp.Or(s.node, s.local))
}

// offer publishes the Node as it would be registered, while the API server has none: static pods don't wait for the API
// server, which may be one of them.
func (s *Service) offer(node *corev1.Node) {
	if s.node != nil {
		return
	}
	if s.local == nil || differs(s.local, node) {
		s.local, s.told = node, false
	}
	if !s.told && s.unclaimed() {
		s.told = true
		s.publish(*node)
	}
}

// unclaimed reports whether no Node of the API server's is in the way of the local one. A Node that an earlier process
// has put on the bus carries labels and taints of others; until the API server says that it is gone it is
// the better one, or pods would be judged by a Node that nobody has labelled.
func (s *Service) unclaimed() bool {
	return s.api == nil || s.absent || s.bus.read && !s.bus.claimed
}

// due reports whether the wanted Node must be written now: at once where a condition changes or a CSI driver comes or
// goes (but see turnEvery), else with the next tick, and in any case after the report period.
func (s *Service) due(wanted *corev1.Node, now time.Time) bool {
	k := s.env.Config.Kubelet
	switch {
	case now.Sub(s.writes.reported) >= k.NodeStatusReportFrequency.Duration:
		return true
	case !differs(s.node, wanted):
		return false
	case now.Sub(s.writes.computed) >= k.NodeStatusUpdateFrequency.Duration:
		return true
	case !slices.Equal(s.node.Status.VolumesInUse, wanted.Status.VolumesInUse):
		return true // pods wait until the attach-detach controller knows
	case !s.writes.turns.may(now):
		return false
	case s.node.Annotations[annotationNodeIDs] != wanted.Annotations[annotationNodeIDs]:
		return true // a CSI driver came or went: pods wait until its labels are on the Node
	}
	return len(turned(s.node.Status.Conditions, wanted.Status.Conditions)) > 0
}

// turned are the conditions of wanted whose status is another than in current.
func turned(current, wanted []corev1.NodeCondition) []corev1.NodeCondition {
	var list []corev1.NodeCondition
	for _, c := range wanted {
		if old := condition(current, c.Type); old == nil || old.Status != c.Status {
			list = append(list, c)
		}
	}
	return list
}

// write runs one request outside the loop, which takes the answer.
func (s *Service) write(ctx context.Context, request func() answer) {
	s.writes.underway = true
	s.loop.Go(func() {
		a := request()
		s.loop.Do(ctx, func() { s.settle(a) })
	})
}

// register makes the Node, or finds the one that exists.
func (s *Service) register(ctx context.Context, wanted *corev1.Node) answer {
	node, err := s.api.CreateNode(ctx, wanted)
	switch {
	case err == nil:
		return answer{node: node, created: true}
	case !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err):
		return answer{err: fmt.Errorf("register node %s: %w", wanted.Name, err)}
	}
	// A node that may not register itself may have been registered by somebody else.
	if node, getErr := s.api.GetNode(ctx, wanted.Name); getErr == nil {
		return answer{node: node}
	}
	return answer{err: fmt.Errorf("register node %s: %w", wanted.Name, err)}
}

func (s *Service) report(ctx context.Context, wanted *corev1.Node) {
	patch, err := diff(s.node, wanted)
	if err != nil {
		s.env.Log.Error("can't compare the Node's status", "node", wanted.Name, "error", err)
		return
	}
	before := s.node
	s.write(ctx, func() answer {
		node, err := s.api.PatchNodeStatus(ctx, wanted.Name, patch)
		if err != nil {
			return answer{err: fmt.Errorf("report the status of node %s: %w", wanted.Name, err)}
		}
		return answer{node: node, report: true, before: before}
	})
}

// settle takes the API server's answer.
func (s *Service) settle(a answer) {
	s.writes.underway = false
	if a.err != nil {
		s.failed(a.err)
		return
	}
	s.writes.failures, s.writes.retry = 0, time.Time{}
	s.env.Health.Set(topic.Healthy, "")
	if a.report {
		s.writes.reported = time.Now()
		s.tell(a.before.Status.Conditions, a.node.Status.Conditions)
		if restored(a.before, a.node) {
			s.take(a.node)
			return
		}
	} else {
		s.env.Log.Info("the node is registered", "node", a.node.Name, "uid", a.node.UID, "new", a.created)
	}
	if a.created {
		s.metrics.created()
		s.event(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	}
	s.adopt(a.node)
}

// failed puts the next write off.
// That the API server finds no Node is a failure like any other: a load balancer may say so too. The watch of the Node
// reports that it is gone.
func (s *Service) failed(err error) {
	s.writes.failures++
	s.writes.retry = time.Now().Add(pause.After(s.writes.failures, writeRetryFirst, writeRetryMax))
	if s.writes.failures == 1 || s.writes.failures%10 == 0 {
		s.env.Log.Warn("the API server did not accept the Node, retrying", "error", err, "failures", s.writes.failures)
	}
	s.env.Health.Set(topic.Degraded, err.Error())
}

// tell records Events of the conditions that have changed.
func (s *Service) tell(before, after []corev1.NodeCondition) {
	for _, c := range turned(before, after) {
		if reason := eventReason(c); reason != "" {
			s.tellReason(reason)
		}
	}
}

func eventReason(c corev1.NodeCondition) string {
	if c.Type == corev1.NodeReady {
		if c.Status == corev1.ConditionTrue {
			return "NodeReady"
		}
		return "NodeNotReady"
	}
	for _, p := range pressures {
		if p.condition != c.Type {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			return p.badEvent
		}
		return p.goodEvent
	}
	return ""
}
