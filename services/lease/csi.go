package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/lease/internal/csinode"
)

const (
	// annotationNodeIDs has the CSI drivers' names of the node, as a JSON object.
	annotationNodeIDs = "csi.volume.kubernetes.io/nodeid"
	// csiNodePeriod is how often the CSINode is compared with what it should be though nothing has changed.
	csiNodePeriod = 5 * time.Minute
	// unspokenAfter is how long a driver of which nobody has spoken since the start stays in the CSINode and in the Node's
	// annotation: its registration may be under way still.
	unspokenAfter = 2 * time.Minute
	// csiRetryFirst and csiRetryMax bound the pause after the API server has not taken the CSINode.
	csiRetryFirst, csiRetryMax = 100 * time.Millisecond, 10 * time.Second
)

// CSI is what CSI drivers and their volumes are to the Node.
type CSI struct {
	// Drivers are what the registered drivers say of this node, by their names.
	Drivers map[string]topic.CSINodeInfo
	// Gone are drivers that were registered, and are no more.
	Gone map[string]bool
	// InUse are the volumes for the Node's status; nil while the volume daemon hasn't told.
	InUse *topic.VolumesInUse
	// Missing is why the node's CSINode doesn't exist yet; nil if it does, or the node needs none.
	Missing error
}

// errNoCSINode is why a node isn't Ready at first: without a CSINode the scheduler doesn't know its limits of volumes.
var errNoCSINode = errors.New("CSINode is not yet initialized")

// csiNode is how far the CSINode is.
type csiNode struct {
	underway, changed bool
	failures          int
	// problems is what was last said of drivers that are left out, to health too.
	problems string
	health   daemon.HealthReporter
	// due is when the CSINode is to be looked at, unless something changes.
	due time.Time
}

// set takes what a driver says of the node, or that it is gone.
func (c *CSI) set(key string, info *topic.CSINodeInfo) {
	if info != nil {
		c.Drivers[info.Name] = *info
		delete(c.Gone, info.Name)
		return
	}
	for name := range c.Drivers {
		if topic.CSIDriverKey(name) == key {
			delete(c.Drivers, name)
			c.Gone[name] = true
		}
	}
}

// reconcileCSINode compares the CSINode with what it should be, if that is due, and returns when to come again.
func (s *Service) reconcileCSINode(ctx context.Context, now time.Time) time.Duration {
	n := &s.csiNode
	switch {
	case s.node == nil || s.node.UID == "" || s.unread > 0 || n.underway:
		return csiNodePeriod
	case now.Before(n.due) && (!n.changed || n.failures > 0):
		return n.due.Sub(now)
	}
	n.underway, n.changed = true, false
	told, problems := placed(s.facts.CSI.Drivers, s.node.Labels)
	late := takeUnlabelled(told, s.node.Labels)
	n.leaveOut(strings.Join(problems, "; "), s.env.Log)
	gone, forgets := maps.Clone(s.facts.CSI.Gone), s.facts.unspoken()
	all := maps.Clone(s.facts.CSI.Drivers)
	wanted := csinode.Wanted{Node: s.env.Config.NodeName, UID: s.node.UID, Drivers: told, Keeps: func(name string) bool {
		_, isMisplaced := all[name]
		return late[name] || !gone[name] && !forgets && !isMisplaced
	}}
	s.loop.Go(func() {
		err := csinode.Reconcile(ctx, s.api, wanted)
		s.loop.Do(ctx, func() {
			n.ended(err, &s.facts, time.Now())
			if n.failures == 3 {
				s.env.Log.Warn("the API server did not accept the CSINode, retrying", "error", err)
			}
		})
	})
	return csiNodePeriod
}

// leaveOut says of drivers why they are left out of the CSINode; the empty text says that none is.
func (n *csiNode) leaveOut(problems string, log *slog.Logger) {
	if problems == n.problems {
		return
	}
	n.problems = problems
	if problems == "" {
		n.health.Set(topic.Healthy, "")
		return
	}
	log.Error("a CSI driver is left out of the CSINode", "error", problems)
	n.health.Set(topic.Degraded, problems)
}

// ended takes the end of a comparison.
func (n *csiNode) ended(err error, f *Facts, now time.Time) {
	n.underway = false
	if err == nil {
		n.failures, f.CSI.Missing = 0, nil
		n.due = now.Add(csiNodePeriod)
		if unspoken := f.Listening.Add(unspokenAfter); now.Before(unspoken) {
			n.due = unspoken.Add(time.Second)
		}
		return
	}
	n.failures++
	n.due = now.Add(pause.After(n.failures, csiRetryFirst, csiRetryMax))
	if f.CSI.Missing != nil {
		f.CSI.Missing = fmt.Errorf("%w: %w", errNoCSINode, err)
	}
}

// placed are the drivers of which the API server takes what they say, and what is wrong with the others. It would
// refuse the whole Node or CSINode for one of these. A label that is there stays: pods may have been placed by it.
func placed(drivers map[string]topic.CSINodeInfo, labels map[string]string) (map[string]topic.CSINodeInfo, []string) {
	fit, problems := map[string]topic.CSINodeInfo{}, []string(nil)
	taken := maps.Clone(labels)
	if taken == nil {
		taken = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		info := drivers[name]
		if problem := misfit(info, taken); problem != "" {
			problems = append(problems, fmt.Sprintf("CSI driver %.80q can't be used: %s", name, problem))
			continue
		}
		maps.Copy(taken, info.Topology)
		fit[name] = info
	}
	return fit, problems
}

// unspoken reports whether drivers of which nobody has spoken since the start are gone.
func (f Facts) unspoken() bool {
	return !f.Listening.IsZero() && f.Now.Sub(f.Listening) > unspokenAfter
}

// takeUnlabelled takes from the drivers those whose topology the Node's labels don't have yet, and returns their names.
// Who reads a topology key in the CSINode looks for that label: a provisioner fails where it is missing. The kubelet
// writes the Node first, too.
func takeUnlabelled(drivers map[string]topic.CSINodeInfo, labels map[string]string) map[string]bool {
	late := map[string]bool{}
	for name, info := range drivers {
		for key, value := range info.Topology {
			if labels[key] != value {
				late[name] = true
			}
		}
	}
	maps.DeleteFunc(drivers, func(name string, _ topic.CSINodeInfo) bool { return late[name] })
	return late
}

// misfit is why a driver is left out; of a collision in the kubelet's words.
func misfit(info topic.CSINodeInfo, labels map[string]string) string {
	if err := info.Validate(); err != nil {
		return strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	for _, key := range slices.Sorted(maps.Keys(info.Topology)) {
		has, there := labels[key]
		switch {
		case there && has != info.Topology[key]:
			return fmt.Sprintf("detected topology value collision: driver reported %q:%q but existing label is %q:%q",
				key, info.Topology[key], key, has)
		case !there && !mayLabel(key):
			return fmt.Sprintf("a node may not label itself with the topology key %q, which is of Kubernetes' own "+
				"namespaces; label the Node by kubectl, or have the driver use a domain of its own", key)
		}
	}
	return ""
}

// setCSI writes what the drivers say of the node into its labels and annotation, and the volumes in use into its
// status. What is said of drivers of which nobody has spoken yet stays.
func setCSI(node *corev1.Node, f Facts) {
	fit, _ := placed(f.CSI.Drivers, node.Labels)
	ids := nodeIDs(node)
	before := maps.Clone(ids)
	for name := range f.CSI.Gone {
		delete(ids, name)
	}
	if f.unspoken() {
		maps.DeleteFunc(ids, func(name, _ string) bool {
			_, known := f.CSI.Drivers[name]
			return !known
		})
	}
	for name, info := range f.CSI.Drivers {
		if _, fits := fit[name]; !fits {
			delete(ids, name)
			continue
		}
		ids[name] = info.NodeID
		for key, value := range info.Topology {
			if node.Labels == nil {
				node.Labels = map[string]string{}
			}
			node.Labels[key] = value
		}
	}
	setNodeIDs(node, before, ids)
	if f.CSI.InUse == nil {
		return
	}
	node.Status.VolumesInUse = nil
	for _, name := range f.CSI.InUse.Names {
		node.Status.VolumesInUse = append(node.Status.VolumesInUse, corev1.UniqueVolumeName(name))
	}
}

// nodeIDs are the drivers' names of the node. A text that somebody else has written there instead counts for nothing.
func nodeIDs(node *corev1.Node) map[string]string {
	ids := map[string]string{}
	if text := node.Annotations[annotationNodeIDs]; json.Unmarshal([]byte(text), &ids) != nil || ids == nil {
		return map[string]string{}
	}
	return ids
}

func setNodeIDs(node *corev1.Node, before, ids map[string]string) {
	if maps.Equal(before, ids) {
		return
	}
	if len(ids) == 0 {
		delete(node.Annotations, annotationNodeIDs)
		return
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if data, err := json.Marshal(ids); err == nil {
		node.Annotations[annotationNodeIDs] = string(data)
	}
}
