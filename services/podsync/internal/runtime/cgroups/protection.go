package cgroups

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri/cgroupname"
	"kubelot.dev/services/podsync/internal/node/qos"
)

// Protection is how the memory that pods request is protected. With cgroup v1 it isn't: only Percent has an effect.
//
// Source: KEP-2570 as in Kubernetes 1.36.
type Protection struct {
	// On is the feature gate MemoryQoS. Without it no protection is written, and none is taken away.
	On bool
	// Tiered is memoryReservationPolicy TieredReservation (qos.Protection). Without it nothing that pods request is
	// protected.
	Tiered bool
	// Report is called with what is protected of guaranteed and of burstable pods, in bytes. It may be nil.
	Report func(guaranteed, burstable int64)
	// Percent is qosReserved: the part of what a class requests that the classes below it can't use; nil for none. It is
	// independent of On.
	Percent *int64
}

// ofPod is the protection of a pod by its request.
func (p Protection) ofPod(class corev1.PodQOSClass, request int64) map[string]string {
	if !p.On || !p.Tiered {
		return nil
	}
	return qos.Protection(class, request)
}

// ofReserved is the protection of what is reserved for others than pods, whatever the policy is for pods.
func (p Protection) ofReserved(bytes int64) map[string]string {
	if !p.On {
		return nil
	}
	return unified(qos.MemoryMin, bytes)
}

// protected is the memory that the cgroups above those of pods protect, in bytes: those of all pods, which must cover
// what their classes protect, and those of the burstable class.
type protected struct{ all, burstable int64 }

// ofClasses is what follows from the requests of active pods, but not less than least where requests are protected.
func (p Protection) ofClasses(r Requests, least protected) protected {
	if !p.On || !p.Tiered {
		r, least = Requests{}, protected{}
	}
	if p.On && p.Report != nil {
		p.Report(r.GuaranteedMemory, r.BurstableMemory)
	}
	return protected{
		all:       max(r.GuaranteedMemory+r.BurstableMemory, least.all),
		burstable: max(r.BurstableMemory, least.burstable),
	}
}

// protect has the classes' cgroups protect that much.
func (c *classes) protect(want protected) error {
	if !c.memory.On {
		return nil
	}
	if want.all != c.has.memory.all {
		if err := c.write(c.at.kubepods, Limits{Unified: unified(qos.MemoryMin, want.all)}); err != nil {
			return err
		}
		c.has.memory.all = want.all
	}
	if want.burstable != c.has.memory.burstable {
		if err := c.write(c.burstable(), Limits{Unified: unified(qos.MemoryLow, want.burstable)}); err != nil {
			return err
		}
		c.has.memory.burstable = want.burstable
	}
	return nil
}

// protected is what an earlier process, or a kubelet, has had the classes' cgroups protect.
func (c *classes) protected() protected {
	if !c.memory.On {
		return protected{}
	}
	return protected{
		all: c.protectedBy(c.at.kubepods, qos.MemoryMin), burstable: c.protectedBy(c.burstable(), qos.MemoryLow),
	}
}

// protectedBy is 0 where the cgroup doesn't exist, and -1 where the file isn't a number.
func (c *classes) protectedBy(n cgroupname.Name, file string) int64 {
	text, err := os.ReadFile(filepath.Join(c.at.mounts[""], c.at.path(n), file))
	if err != nil {
		return 0
	}
	bytes, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return -1
	}
	return bytes
}

func unified(file string, bytes int64) map[string]string {
	return map[string]string{file: strconv.FormatInt(bytes, 10)}
}
