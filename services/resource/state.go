package resource

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/atomicfile"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/statefile"
)

// bootName is a file beside that of the devices. It says in which run of the machine kubelot has written that one, or
// earlierBoot where some of what is in it is from before.
const bootName, earlierBoot = "kubelot_boot_id", "an earlier one"

// files are the paths of the kubelet's state files, and of bootName.
type files struct{ cpus, memory, devices, boot string }

func filesOf(rootDir, deviceDir string) files {
	return files{
		cpus:    filepath.Join(rootDir, statefile.CPUName),
		memory:  filepath.Join(rootDir, statefile.MemoryName),
		devices: filepath.Join(deviceDir, statefile.DevicesName),
		boot:    filepath.Join(deviceDir, bootName),
	}
}

// snapshot is what pods have, as the state files have it.
type snapshot struct {
	cpus    statefile.CPU
	memory  statefile.Memory
	devices statefile.Devices
	// stale is true where plugins have to be asked again about some of the devices, which are from before a reboot.
	stale bool
	// told is true where it is known which devices there were, if only that there were none.
	told bool
}

// policies are the names by which the files' states are told apart.
type policies struct{ cpu, memory string }

// snapshot asks the loop what pods have.
func (s *Service) snapshot(ctx context.Context) (snapshot, error) {
	return ask(ctx, s.loop, func() (snapshot, error) { return s.holdings.snapshot(), nil })
}

func (h *holdings) snapshot() snapshot {
	now := snapshot{
		cpus: statefile.CPU{
			Policy: h.policies.cpu, Shared: h.cpus.Shared(), Containers: map[string]map[string]cpuset.CPUSet{},
		},
		memory: statefile.Memory{Policy: h.policies.memory, Snapshot: h.memory.Snapshot()},
		told:   !h.untold,
	}
	for uid, containers := range h.cpus.Entries() {
		now.cpus.Containers[string(uid)] = containers
	}
	kept := h.devices.Export()
	now.devices.Registered, now.stale = kept.RegisteredDevices, len(kept.Stale) > 0
	for _, e := range kept.PodDeviceEntries {
		now.devices.Entries = append(now.devices.Entries, statefile.DeviceEntry(e))
	}
	return now
}

// writer writes the state files. It knows what is in them: each write waits for the disk.
type writer struct {
	files
	last snapshot
	// known are the files whose content last is.
	known struct{ cpus, memory, devices bool }
}

// newWriter makes the writer of files that were taken over into the holdings. That of devices isn't written again as
// long as they are what it says: when it was written tells what is from before a reboot.
func newWriter(f files, h *holdings, found recalled) *writer {
	w := &writer{files: f, last: h.snapshot()}
	w.known.devices = found.devices
	return w
}

// write replaces the state files that have another content. One that somebody has removed is written again: the
// directory of plugins is one that people empty, or remove, to have these register again.
func (w *writer) write(s snapshot) error {
	var errs []error
	put := func(path string, known *bool, same bool, write func() error) {
		if *known && same && there(path) {
			return
		}
		err := write()
		errs, *known = append(errs, err), err == nil
	}
	put(w.cpus, &w.known.cpus, reflect.DeepEqual(w.last.cpus, s.cpus), func() error {
		return statefile.WriteCPU(w.cpus, s.cpus)
	})
	put(w.memory, &w.known.memory, reflect.DeepEqual(w.last.memory, s.memory), func() error {
		return statefile.WriteMemory(w.memory, s.memory)
	})
	// Without a file nothing is known of devices, which is not the same as knowing that there are none.
	if s.told || len(s.devices.Entries) > 0 || len(s.devices.Registered) > 0 || there(w.devices) {
		same := reflect.DeepEqual(w.last.devices, s.devices) && w.last.stale == s.stale
		put(w.devices, &w.known.devices, same, func() error { return w.writeDevices(s.devices, s.stale) })
	}
	w.last = s
	return errors.Join(errs...)
}

// writeDevices writes the file of devices and then that of the boot, so that the second is never older. The second need
// not survive a loss of power: what is left of it is of another boot, as the first is then. Stale devices must never
// seem to be of this boot, also where the daemon is killed between the two: then that of the boot comes first.
func (f files) writeDevices(d statefile.Devices, stale bool) error {
	if err := os.MkdirAll(filepath.Dir(f.devices), pluginsMode); err != nil {
		return err
	}
	if stale {
		if err := atomicfile.Write(f.boot, []byte(earlierBoot), 0o600); err != nil {
			return err
		}
	}
	if err := statefile.WriteDevices(f.devices, d); err != nil || stale {
		return err
	}
	return atomicfile.Write(f.boot, []byte(machine.BootID()), 0o600)
}

// old reports whether the file of devices has some from before the machine was booted. Of a kubelet's file only its
// time says that, which is wrong where the clock was set since. A file that is newer than that of the boot is a
// kubelet's.
func (f files) old(booted time.Time) bool {
	written, now := changed(f.devices), machine.BootID()
	boot, err := os.ReadFile(f.boot)
	if string(boot) == earlierBoot {
		return true
	}
	if err != nil || now == "" || changed(f.boot).Before(written) {
		return written.Before(booted)
	}
	return string(boot) != now
}

// changed is when the file was changed last; zero where it isn't there.
func changed(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

func there(path string) bool { return !changed(path).IsZero() }

// predecessor is what an earlier run has said on the bus.
type predecessor struct {
	pods map[string]topic.Allocation
	node topic.NodeResources
	// said is true where it has said anything of the node.
	said bool
}

// recalled is what taking over what an earlier run has left has shown.
type recalled struct {
	// before is what it has said of pods, until it is known which pods there are.
	before map[string]topic.Allocation
	// released is what containers don't have any more, by the UIDs of their pods, as sentences for their users.
	released map[string][]string
	// unpinned says that containers may be kept to CPUs or NUMA nodes though the policy that did it is off.
	unpinned struct{ cpus, memory bool }
	// gone are devices that the Node was to lose: it may not have lost them yet.
	gone []corev1.ResourceName
	// devices is true where the file of devices could be read.
	devices bool
}

func (r *recalled) release(log *slog.Logger, uid, container, what, why string) {
	log.Warn("a container does not keep what it had for itself", "uid", uid, "container", container, "what", what,
		"reason", why)
	r.released[uid] = append(r.released[uid], fmt.Sprintf("Container %s shares %s with others again: %s", container,
		what, why))
}

// recall takes over what an earlier run, or a kubelet, has left. What doesn't fit the machine or the policy any more is
// released, and said. A file that can't be used is passed over; of CPUs and devices the bus tells then. Pods whose
// devices were written down before the machine was booted, and that weren't said to have any since, don't run: their
// plugins are asked again.
func (h *holdings) recall(f files, before predecessor, booted time.Time, log *slog.Logger) recalled {
	found := recalled{before: before.pods, gone: before.node.Gone, released: map[string][]string{}}
	found.unpinned.memory = before.node.SharedMemoryNodes != ""
	h.recallCPUs(f.cpus, before, &found, log)
	if saved, err := statefile.ReadMemory(f.memory); usable(log, f.memory, err) {
		for _, r := range h.memory.Adopt(saved.Entries) {
			found.release(log, r.UID, r.Container, "its memory", r.Why)
			found.unpinned.memory = true
		}
	}
	saved, err := statefile.ReadDevices(f.devices)
	h.untold = errors.Is(err, fs.ErrNotExist) && !before.said
	if usable(log, f.devices, err) {
		kept := devices.Checkpoint{RegisteredDevices: saved.Registered, Stale: map[string]bool{}}
		old := f.old(booted)
		for _, e := range saved.Entries {
			kept.PodDeviceEntries = append(kept.PodDeviceEntries, devices.Entry(e))
			kept.Stale[e.PodUID] = old && before.pods[e.PodUID].Phase != topic.Allocated
		}
		h.devices.Adopt(kept)
		found.devices = true
	} else {
		h.devices.Adopt(before.devices(log))
	}
	return found
}

// recallCPUs takes over who has CPUs for itself.
func (h *holdings) recallCPUs(path string, before predecessor, found *recalled, log *slog.Logger) {
	policy, entries := cpus.PolicyStatic, cpus.Entries{}
	saved, err := statefile.ReadCPU(path)
	if usable(log, path, err) {
		policy = saved.Policy
		for uid, containers := range saved.Containers {
			entries[types.UID(uid)] = containers
		}
	} else {
		entries = before.cpus()
	}
	for _, r := range h.cpus.Adopt(policy, entries) {
		found.release(log, string(r.Pod), r.Container, "the CPUs "+r.CPUs.String(), r.Why)
	}
	if len(saved.ByID) > 0 { // the kubelet asks the runtime whose they are; here their pods get CPUs anew
		log.Warn("containers lose the CPUs that they had for themselves: the file is of version 1, which doesn't say "+
			"of which pods they are", "path", path, "cpus", saved.ByID)
	}
	found.unpinned.cpus = h.cpus.Policy() != cpus.PolicyStatic &&
		(before.node.SharedCPUs != "" || saved.Policy == cpus.PolicyStatic)
}

// cpus are those of which an earlier run has told.
func (p predecessor) cpus() cpus.Entries {
	told := cpus.Entries{}
	for uid, a := range p.pods {
		for container, c := range a.Containers {
			if list, err := cpuset.Parse(c.CPUs); err == nil && !list.IsEmpty() {
				if told[types.UID(uid)] == nil {
					told[types.UID(uid)] = map[string]cpuset.CPUSet{}
				}
				told[types.UID(uid)][container] = list
			}
		}
	}
	return told
}

// devices are those of which an earlier run has told, with what their plugins have answered. That isn't told by
// resource, so the first one of a container has it all.
func (p predecessor) devices(log *slog.Logger) devices.Checkpoint {
	told := devices.Checkpoint{RegisteredDevices: map[string][]string{}}
	for name := range p.node.Devices {
		told.RegisteredDevices[string(name)] = nil
	}
	for uid, a := range p.pods {
		for container, c := range a.Containers {
			ids := map[string][]string{}
			for _, d := range c.Devices {
				if strings.HasPrefix(d.Resource, topic.ClaimPrefix) {
					c.CDI = nil // those of claims are among them
				} else {
					ids[d.Resource] = append(ids[d.Resource], d.ID)
				}
			}
			answer, err := deviceplugin.Answer(c)
			if err != nil {
				log.Error("can't keep what device plugins have answered", "uid", uid, "container", container, "error", err)
			}
			for _, name := range slices.Sorted(maps.Keys(ids)) {
				told.PodDeviceEntries = append(told.PodDeviceEntries, devices.Entry{
					PodUID: uid, ContainerName: container, ResourceName: name,
					DeviceIDs: map[int64][]string{devices.NoNode: ids[name]}, AllocResp: answer,
				})
				answer = nil
			}
		}
	}
	return told
}

// usable reports whether a state file was read. One that isn't there is no fault.
func usable(log *slog.Logger, path string, err error) bool {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("can't use a state file, going on without it: others may get what pods have that run",
			"file", path, "error", err)
	}
	return err == nil
}
