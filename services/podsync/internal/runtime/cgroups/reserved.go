package cgroups

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// Reserved is a cgroup of somebody else's, the system's or that of Kubernetes' daemons, and what is reserved for it
// (enforceNodeAllocatable).
type Reserved struct {
	// Name is that in enforceNodeAllocatable, such as system-reserved.
	Name string
	// Cgroup is a path, or a systemd slice.
	Cgroup string
	List   corev1.ResourceList
	// Compressible holds it to its share of the CPUs only, and not to memory and processes.
	Compressible bool
}

// Hold sets the limits of a reserved cgroup. It has to exist: who runs in it has made it.
func (m *Manager) Hold(r Reserved) error {
	n, err := m.reservedName(r.Cgroup)
	if err != nil {
		return err
	}
	for _, controller := range []string{"", "cpu", "memory", "pids"} {
		mount, mounted := m.mounts[controller]
		if !mounted {
			continue
		}
		if _, err := os.Stat(filepath.Join(mount, m.path(n))); err != nil {
			return fmt.Errorf("cgroup %s of reserved resources: %w: make it: it is looked for again", r.Cgroup, err)
		}
	}
	return m.set(n, reservedLimits(r, m.cfg.Memory))
}

// reservedLimits leaves alone what nothing is reserved of.
func reservedLimits(r Reserved, protection Protection) Limits {
	var out Limits
	if q, ok := r.List[corev1.ResourceCPU]; ok {
		out.CPUShares = CPUShares(q.MilliValue())
	}
	if r.Compressible {
		return out
	}
	if q, ok := r.List[corev1.ResourceMemory]; ok {
		out.Memory, out.Unified = q.Value(), protection.ofReserved(q.Value())
	}
	if q, ok := r.List[PIDs]; ok {
		out.Pids = q.Value()
	}
	if pages := HugePages(r.List); len(pages) > 0 {
		out.HugePages = pages
	}
	return out
}
