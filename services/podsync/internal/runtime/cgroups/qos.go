package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/podsync/internal/node/qos"
)

// BurstableCPU is what a pod, while it is active, adds to the burstable class, in thousandths of a CPU: what it
// requests if it is of that class.
func BurstableCPU(pod *corev1.Pod) (milli int64) {
	if qos.Class(pod) != corev1.PodQOSBurstable {
		return 0
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return requests.Cpu().MilliValue()
}

// BurstableShares are the CPU shares of the burstable class for the sum of its pods' BurstableCPU.
func BurstableShares(milli int64) uint64 { return cpuShares(milli) }

// UpdateQOS sets the CPU shares of the burstable class (see BurstableShares). Where they aren't complete, as before
// every pod source has delivered, they only grow.
func (m *Manager) UpdateQOS(shares uint64, complete bool) error {
	if !m.cfg.PerQOS || shares == m.burstable || !complete && shares < m.burstable {
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
