package podsync

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
)

// nodeCgroupWork is the key of the manager's work: one call at a time.
const nodeCgroupWork = "cgroups of the node"

// The kubelet's reasons of Events on the Node.
const (
	reasonHeld    = "NodeAllocatableEnforced"
	reasonNotHeld = "FailedNodeAllocatableEnforcement"
)

// nodeManager makes the cgroups above those of pods. Its calls may take as long as systemd does to answer.
type nodeManager interface {
	UseDriver(driver string) error
	EnsureNode(capacity, allocatable corev1.ResourceList) error
	Hold(reserved cgroups.Reserved) error
	UpdateQOS(requests cgroups.Requests, complete bool) error
}

// nodeCgroups are the cgroups above those of pods. The loop says how they are to be; slow work makes them so. All
// fields but the manager belong to the loop.
type nodeCgroups struct {
	manager nodeManager
	cfg     *config.Config
	health  daemon.HealthReporter
	report  *events.Reporter
	log     *slog.Logger

	onMade func()              // called when they are there and were not before
	next   cgroupWork          // what must be done and hasn't begun
	made   bool                // they are there: pods can run
	asked  corev1.ResourceList // the capacity for which they were to be made last; nil for none
	failed bool                // that has failed, for the cgroups or for their limits
	held   bool                // Events have told that all are held to their limits
	err    error               // why they couldn't be made last
	qos    qosInput            // from which the QoS classes' cgroups were set last
	qosErr error               // why they couldn't be set last
}

// cgroupWork is what the manager is to do. A later request takes the place of an earlier one.
type cgroupWork struct {
	ensure corev1.ResourceList // make the node's cgroups for this capacity; nil for not
	qos    *qosInput           // nil for not
}

// qosInput is what active pods request. Where that isn't complete, nothing is taken from a class.
type qosInput struct {
	requests cgroups.Requests
	complete bool
}

// ensure has the node's cgroups made, and their limits follow its capacity: huge pages may come later. Limits that
// can't be set, as below what pods use, don't keep pods from running. retry has what has failed tried again.
func (c *nodeCgroups) ensure(t *tasks, capacity corev1.ResourceList, retry bool) {
	if c.asked == nil || retry && c.failed || !equality.Semantic.DeepEqual(c.asked, capacity) {
		c.asked, c.failed, c.next.ensure = capacity, false, capacity
		c.begin(t)
	}
}

// state is the daemon's health as long as the cgroups aren't made.
func (c *nodeCgroups) state() (topic.HealthState, string) {
	if c.err != nil {
		return topic.Unhealthy, c.err.Error()
	}
	return topic.Degraded, "waiting for the node's cgroups before pods are admitted"
}

// updateQOS gives the QoS classes what follows from the requests of the active pods.
func (c *nodeCgroups) updateQOS(t *tasks, requests cgroups.Requests, complete bool) {
	wanted := qosInput{requests, complete}
	if wanted != c.qos || c.qosErr != nil || c.next.qos != nil {
		c.next.qos = &wanted
		c.begin(t)
	}
}

// begin begins what must be done. While the manager is at work, that waits for its answer.
func (c *nodeCgroups) begin(t *tasks) {
	work := c.next
	if work.ensure == nil && work.qos == nil {
		return
	}
	begun := t.slow(nodeCgroupWork, func() func() {
		var ensureErr, qosErr error
		if work.ensure != nil {
			ensureErr = c.make(work.ensure)
		}
		if work.qos != nil {
			qosErr = c.manager.UpdateQOS(work.qos.requests, work.qos.complete)
		}
		return func() {
			if work.ensure != nil {
				c.ensureEnded(ensureErr)
			}
			if work.qos != nil {
				c.qosEnded(*work.qos, qosErr)
			}
			c.begin(t)
		}
	})
	if begun {
		c.next = cgroupWork{}
	}
}

// make makes the node's cgroups, and holds what runs next to pods to what is reserved for it. It is slow.
func (c *nodeCgroups) make(capacity corev1.ResourceList) error {
	k := &c.cfg.Kubelet
	ofNode := maps.Clone(capacity)
	delete(ofNode, cgroups.PIDs) // it is no resource of the Node
	if err := config.Reservable(k, ofNode); err != nil {
		return err
	}
	err := c.manager.EnsureNode(capacity, cgroups.NodeLimits(capacity, config.Reserved(k)))
	if err != nil && !softly(err) {
		return err
	}
	for _, r := range cgroups.ReservedOf(k) {
		if failed := c.manager.Hold(r); failed != nil {
			err = errors.Join(err, &cgroups.LimitsError{Cgroup: r.Cgroup, Err: failed})
		}
	}
	return err
}

// softly reports whether only limits couldn't be set: pods can run.
func softly(err error) bool { return errors.As(err, new(*cgroups.LimitsError)) }

// ensureEnded takes the answer of make. Cgroups that were made once stay: pods run on, whatever fails later.
func (c *nodeCgroups) ensureEnded(err error) {
	c.failed = err != nil
	switch {
	case err == nil:
		c.qos = qosInput{} // what the classes get follows from the capacity, too
		c.tellHeld()
	case c.made, softly(err):
		c.log.Warn("can't set the limits of the node's cgroups, retrying", "error", err, "retry_in", housekeepingEvery)
		c.held = false
		c.report.NodeEvent(c.cfg.NodeName, corev1.EventTypeWarning, reasonNotHeld,
			"Failed to update Node Allocatable Limits: "+err.Error())
	default:
		c.err = fmt.Errorf("set up the node's cgroups: %w", err)
		c.log.Warn("can't create the node's cgroups, retrying", "error", err, "retry_in", housekeepingEvery)
		c.health.Set(c.state())
		return
	}
	c.err = nil
	if !c.made {
		c.made = true
		c.onMade()
	}
}

// tellHeld tells which cgroups are held to their limits: at each start, and when what has failed was mended.
func (c *nodeCgroups) tellHeld() {
	if c.held {
		return
	}
	c.held = true
	tell := func(message string) {
		c.report.NodeEvent(c.cfg.NodeName, corev1.EventTypeNormal, reasonHeld, message)
	}
	if k := &c.cfg.Kubelet; k.CgroupsPerQOS == nil || *k.CgroupsPerQOS {
		tell("Updated Node Allocatable limit across pods")
	}
	for _, r := range cgroups.ReservedOf(&c.cfg.Kubelet) {
		tell(fmt.Sprintf("Updated limits on %s cgroup %s", r.Of, r.Cgroup))
	}
}

// qosEnded takes the answer of UpdateQOS. A failure is logged when it is new.
func (c *nodeCgroups) qosEnded(set qosInput, err error) {
	if err != nil && (c.qosErr == nil || err.Error() != c.qosErr.Error()) {
		c.log.Warn("can't set what the QoS cgroups share, retrying with the next pod", "error", err)
	}
	c.qos, c.qosErr = set, err
}
