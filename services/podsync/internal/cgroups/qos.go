package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/podsync/internal/qos"
)

// UpdateQOS sets the CPU shares of the burstable class to what its active pods request. Where active isn't
// complete, as before every pod source has delivered, the shares only grow.
func (m *Manager) UpdateQOS(active []*corev1.Pod, complete bool) error {
	if !m.cfg.PerQOS {
		return nil
	}
	var milli int64
	for _, pod := range active {
		if qos.Class(pod) == corev1.PodQOSBurstable {
			requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			milli += requests.Cpu().MilliValue()
		}
	}
	shares := Shares(milli)
	if shares == m.burstable || !complete && shares < m.burstable {
		return nil
	}
	if err := m.set(m.kubepods.Child(cgroupname.Burstable), Limits{CPUShares: shares}); err != nil {
		return err
	}
	m.burstable = shares
	return nil
}

// shares are the CPU shares that the cgroup has; the least there are where it doesn't exist.
func (m *Manager) shares(n cgroupname.Name) uint64 {
	file, fromFile := filepath.Join(m.mounts["cpu"], m.path(n), "cpu.shares"), func(v uint64) uint64 { return v }
	if m.v2 {
		file, fromFile = filepath.Join(m.mounts[""], m.path(n), "cpu.weight"), sharesOf
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return minShares
	}
	value, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || value == 0 {
		return minShares
	}
	return min(max(fromFile(value), minShares), maxShares)
}

// sharesOf are the least CPU shares that have the weight.
func sharesOf(weight uint64) uint64 {
	return minShares + ((weight-1)*(maxShares-minShares)+9998)/9999
}
