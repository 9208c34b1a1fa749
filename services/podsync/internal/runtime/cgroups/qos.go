package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/daemon/podspec"
)

// Requests are what active pods request, as far as the cgroups of the QoS classes follow from it.
type Requests struct {
	// BurstableCPU is in thousandths of a CPU.
	BurstableCPU int64
	// BurstableMemory and GuaranteedMemory are in bytes.
	BurstableMemory, GuaranteedMemory int64
}

// RequestsOf is what a pod, while it is active, adds to the classes.
func RequestsOf(pod *corev1.Pod) (r Requests) {
	class := podspec.QOSClass(pod)
	if class == corev1.PodQOSBestEffort {
		return r
	}
	list := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if class == corev1.PodQOSGuaranteed {
		return Requests{GuaranteedMemory: list.Memory().Value()}
	}
	return Requests{BurstableCPU: list.Cpu().MilliValue(), BurstableMemory: list.Memory().Value()}
}

// Add adds what another pod requests.
func (r *Requests) Add(other Requests) {
	r.BurstableCPU += other.BurstableCPU
	r.BurstableMemory += other.BurstableMemory
	r.GuaranteedMemory += other.GuaranteedMemory
}

// classes are the cgroups of the QoS classes and the one of all pods above them, which get what follows from what
// active pods request.
type classes struct {
	at     *layout
	v2     bool
	memory Protection
	// allocatable is the memory that all pods together may use, in bytes; 0 where it isn't known.
	allocatable int64
	// write sets the limits of a cgroup, usage is the memory that it uses, in bytes.
	write func(cgroupname.Name, Limits) error
	usage func(cgroupname.Name) (uint64, error)
	has   given
}

// given is what the classes have.
type given struct {
	// shares are the CPU shares of the burstable class.
	shares uint64
	memory protected
	bounds bounds
}

// burstable is the cgroup of the burstable class.
func (c *classes) burstable() cgroupname.Name { return c.at.kubepods.Child(cgroupname.Burstable) }

// found is what an earlier process has given the classes.
func (c *classes) found() given { return given{shares: c.shares(c.burstable()), memory: c.protected()} }

// UpdateQOS gives the QoS classes what follows from what active pods request. Where not all of these are known, as
// before every pod source has delivered, nothing is taken from a class.
func (m *Manager) UpdateQOS(r Requests, complete bool) error {
	if !m.cfg.PerQOS {
		return nil
	}
	return m.qos.update(r, complete)
}

func (c *classes) update(r Requests, complete bool) error {
	var least given
	if !complete {
		least = c.has
	}
	if err := c.protect(c.memory.ofClasses(r, least.memory)); err != nil {
		return err
	}
	if want := max(CPUShares(r.BurstableCPU), least.shares); want != c.has.shares {
		if err := c.write(c.burstable(), Limits{CPUShares: want}); err != nil {
			return err
		}
		c.has.shares = want
	}
	if !complete {
		return nil
	}
	return c.bound(r)
}

// shares are the CPU shares that the cgroup has; the least there are where it doesn't exist.
func (c *classes) shares(n cgroupname.Name) uint64 {
	file, fromFile := filepath.Join(c.at.mounts["cpu"], c.at.path(n), "cpu.shares"), func(v uint64) uint64 { return v }
	if c.v2 {
		file, fromFile = filepath.Join(c.at.mounts[""], c.at.path(n), "cpu.weight"), sharesOf
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
