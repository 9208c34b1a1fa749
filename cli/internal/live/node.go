package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cli/internal/why"
	"kubelot.dev/daemon/config"
)

func nodeOf(e entry) corev1.Node { return only[corev1.Node](e) }

func conditionOf(node corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// nodeAt is the node as the cluster and the kernel see it.
func (m *Model) nodeAt(now time.Time) Node {
	answer := why.ExplainNode(m.snapshot, now)
	s := m.snapshot
	n := Node{
		Name: s.Node.Name, Ready: answer.Ready, Sentence: answer.Sentence, Answer: answer,
		Conditions: slices.Clone(s.Node.Status.Conditions), Kernel: m.facts.KernelVersion, OS: m.facts.OSImage,
		Runtime: strings.TrimSpace(s.Runtime.Name + " " + s.Runtime.Version), Cores: m.facts.NumCores,
		Pressure: s.Pressure, Shutdown: s.Shutdown.Active,
	}
	if !m.synced {
		n.Sentence = ""
	}
	if m.machine != nil {
		n.Load, n.Signals = m.machine.Load, signals(*m.machine)
	}
	return n
}

// signals are the eviction signals of a machine.
func signals(r Machine) []Signal {
	var list []Signal
	if r.MemoryBytes > 0 {
		list = append(list, Signal{
			Name: "memory.available", Available: r.AvailableBytes, Capacity: r.MemoryBytes, Bytes: true,
		})
	}
	for _, d := range r.Disks {
		list = append(list, Signal{
			Name: d.Role + ".available", Path: d.Path, Available: d.AvailableBytes, Capacity: d.CapacityBytes, Bytes: true,
		})
		if d.Inodes > 0 {
			list = append(list, Signal{
				Name: d.Role + ".inodesFree", Path: d.Path, Available: d.FreeInodes, Capacity: d.Inodes,
			})
		}
	}
	if r.PIDLimit > 0 {
		list = append(list, Signal{
			Name: "pid.available", Available: uint64(max(0, r.PIDLimit-r.PIDs)), Capacity: uint64(r.PIDLimit),
		})
	}
	for i := range list {
		list[i].judge(r.Thresholds)
	}
	return list
}

// judge finds the highest of the signal's thresholds: the first one to be met.
func (s *Signal) judge(all []Threshold) {
	for _, t := range all {
		if t.Signal != s.Name {
			continue
		}
		if limit := limitOf(t.Value, s.Capacity); s.Threshold == "" || limit > s.Limit {
			s.Threshold, s.Limit = t.Value, limit
		}
	}
	s.Under = s.Threshold != "" && s.Available < s.Limit
}

// limitOf is a threshold in the units of the capacity; 0 where it can't be read, which the daemons have refused.
func limitOf(value string, capacity uint64) uint64 {
	v, err := config.ParseEvictionValue(value)
	switch {
	case err != nil:
		return 0
	case v.Quantity != nil:
		return uint64(max(0, v.Quantity.Value()))
	}
	return uint64(v.Share * float64(capacity))
}

// Full is how much of the capacity is in use, from 0 to 1.
func (s Signal) Full() float64 {
	return 1 - float64(min(s.Available, s.Capacity))/float64(cmp.Or(s.Capacity, 1))
}
