// Package nodecgroups has the cgroups above those of pods made and held to their limits, and tried again where that
// fails. They are made by slow work, one call at a time, as each may take as long as systemd does to answer.
package nodecgroups

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
)

// workKey is the key of the manager's work: one call at a time.
const workKey = "cgroups of the node"

// The kubelet's reasons of Events on the Node.
const (
	reasonHeld    = "NodeAllocatableEnforced"
	reasonNotHeld = "FailedNodeAllocatableEnforcement"
)

// Manager makes the cgroups above those of pods. Its calls may take as long as systemd does to answer.
type Manager interface {
	UseDriver(driver string) error
	EnsureNode(capacity, allocatable corev1.ResourceList) error
	Hold(reserved cgroups.Reserved) error
	UpdateQOS(requests cgroups.Requests, complete bool) error
}

// Slow does work in a goroutine of its own, and has the loop run the answer. There is one at a time for each key: it
// reports whether it has begun this one.
type Slow func(key string, work func() (answer func())) (begun bool)

// Config is what the cgroups are made with.
type Config struct {
	Manager  Manager
	Settings *config.Config
	Health   daemon.HealthReporter
	Report   *events.Reporter
	Log      *slog.Logger
	// RetryEvery is how often Ensure is called with retry, for people.
	RetryEvery time.Duration
	// OnMade is called when the cgroups are there and were not before.
	OnMade func()
}

// Cgroups are the cgroups above those of pods. The loop says how they are to be; slow work makes them so. All fields
// but the manager belong to the loop.
type Cgroups struct {
	Config

	next   work                // what must be done and hasn't begun
	made   bool                // they are there: pods can run
	asked  corev1.ResourceList // the capacity for which they were to be made last; nil for none
	failed bool                // that has failed, for the cgroups or for their limits
	held   bool                // Events have told that all are held to their limits
	err    error               // why they couldn't be made last
	qos    qosInput            // from which the QoS classes' cgroups were set last
	qosErr error               // why they couldn't be set last
}

// New makes nothing yet.
func New(cfg Config) *Cgroups { return &Cgroups{Config: cfg} }

// Made reports whether the cgroups are there: pods can run.
func (c *Cgroups) Made() bool { return c.made }

// work is what the manager is to do. A later request takes the place of an earlier one.
type work struct {
	ensure corev1.ResourceList // make the node's cgroups for this capacity; nil for not
	qos    *qosInput           // nil for not
}

// qosInput is what active pods request. Where that isn't complete, nothing is taken from a class.
type qosInput struct {
	requests cgroups.Requests
	complete bool
}

// Ensure has the node's cgroups made, and their limits follow its capacity: huge pages may come later. Limits that
// can't be set, as below what pods use, don't keep pods from running. retry has what has failed tried again.
func (c *Cgroups) Ensure(slow Slow, capacity corev1.ResourceList, retry bool) {
	if c.asked == nil || retry && c.failed || !equality.Semantic.DeepEqual(c.asked, capacity) {
		c.asked, c.failed, c.next.ensure = capacity, false, capacity
		c.begin(slow)
	}
}

// State is the daemon's health as long as the cgroups aren't made.
func (c *Cgroups) State() (topic.HealthState, string) {
	if c.err != nil {
		return topic.Unhealthy, c.err.Error()
	}
	return topic.Degraded, "waiting for the node's cgroups before pods are admitted"
}

// UpdateQOS gives the QoS classes what follows from the requests of the active pods.
func (c *Cgroups) UpdateQOS(slow Slow, requests cgroups.Requests, complete bool) {
	wanted := qosInput{requests, complete}
	if wanted != c.qos || c.qosErr != nil || c.next.qos != nil {
		c.next.qos = &wanted
		c.begin(slow)
	}
}

// begin begins what must be done. While the manager is at work, that waits for its answer.
func (c *Cgroups) begin(slow Slow) {
	due := c.next
	if due.ensure == nil && due.qos == nil {
		return
	}
	begun := slow(workKey, func() func() {
		var ensureErr, qosErr error
		if due.ensure != nil {
			ensureErr = c.make(due.ensure)
		}
		if due.qos != nil {
			qosErr = c.Manager.UpdateQOS(due.qos.requests, due.qos.complete)
		}
		return func() {
			if due.ensure != nil {
				c.ensureEnded(ensureErr)
			}
			if due.qos != nil {
				c.qosEnded(*due.qos, qosErr)
			}
			c.begin(slow)
		}
	})
	if begun {
		c.next = work{}
	}
}

// make makes the node's cgroups, and holds what runs next to pods to what is reserved for it. It is slow.
func (c *Cgroups) make(capacity corev1.ResourceList) error {
	k := &c.Settings.Kubelet
	ofNode := maps.Clone(capacity)
	delete(ofNode, cgroups.PIDs) // it is no resource of the Node
	if err := config.Reservable(k, ofNode); err != nil {
		return err
	}
	err := c.Manager.EnsureNode(capacity, cgroups.NodeLimits(capacity, config.Reserved(k)))
	if err != nil && !softly(err) {
		return err
	}
	for _, r := range cgroups.ReservedOf(k) {
		if failed := c.Manager.Hold(r); failed != nil {
			err = errors.Join(err, &cgroups.LimitsError{Cgroup: r.Cgroup, Err: failed})
		}
	}
	return err
}

// softly reports whether only limits couldn't be set: pods can run.
func softly(err error) bool { return errors.As(err, new(*cgroups.LimitsError)) }

// ensureEnded takes the answer of make. Cgroups that were made once stay: pods run on, whatever fails later.
func (c *Cgroups) ensureEnded(err error) {
	c.failed = err != nil
	switch {
	case err == nil:
		c.qos = qosInput{} // what the classes get follows from the capacity, too
		c.tellHeld()
	case c.made, softly(err):
		c.Log.Warn("can't set the limits of the node's cgroups, retrying", "error", err, "retry_in", c.RetryEvery)
		c.held = false
		c.Report.NodeEvent(c.Settings.NodeName, corev1.EventTypeWarning, reasonNotHeld,
			"Failed to update Node Allocatable Limits: "+err.Error())
	default:
		c.err = fmt.Errorf("set up the node's cgroups: %w", err)
		c.Log.Warn("can't create the node's cgroups, retrying", "error", err, "retry_in", c.RetryEvery)
		c.Health.Set(c.State())
		return
	}
	c.err = nil
	if !c.made {
		c.made = true
		c.OnMade()
	}
}

// tellHeld tells which cgroups are held to their limits: at each start, and when what has failed was mended.
func (c *Cgroups) tellHeld() {
	if c.held {
		return
	}
	c.held = true
	tell := func(message string) {
		c.Report.NodeEvent(c.Settings.NodeName, corev1.EventTypeNormal, reasonHeld, message)
	}
	if k := &c.Settings.Kubelet; k.CgroupsPerQOS == nil || *k.CgroupsPerQOS {
		tell("Updated Node Allocatable limit across pods")
	}
	for _, r := range cgroups.ReservedOf(&c.Settings.Kubelet) {
		tell(fmt.Sprintf("Updated limits on %s cgroup %s", strings.ReplaceAll(r.Name, "-", " "), r.Cgroup))
	}
}

// qosEnded takes the answer of UpdateQOS. A failure is logged when it is new.
func (c *Cgroups) qosEnded(set qosInput, err error) {
	if err != nil && (c.qosErr == nil || err.Error() != c.qosErr.Error()) {
		c.Log.Warn("can't set what the QoS cgroups share, retrying with the next pod", "error", err)
	}
	c.qos, c.qosErr = set, err
}
