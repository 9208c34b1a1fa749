package resource

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/statefile"
)

// files are the paths of the kubelet's state files.
type files struct{ cpus, memory, devices string }

func filesOf(rootDir, deviceDir string) files {
	return files{
		cpus:    filepath.Join(rootDir, statefile.CPUName),
		memory:  filepath.Join(rootDir, statefile.MemoryName),
		devices: filepath.Join(deviceDir, statefile.DevicesName),
	}
}

// snapshot is what pods have, as the state files have it.
type snapshot struct {
	cpus    statefile.CPU
	memory  statefile.Memory
	devices statefile.Devices
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
	}
	for uid, containers := range h.cpus.Entries() {
		now.cpus.Containers[string(uid)] = containers
	}
	kept := h.devices.Export()
	now.devices.Registered = kept.RegisteredDevices
	for _, e := range kept.PodDeviceEntries {
		now.devices.Entries = append(now.devices.Entries, statefile.DeviceEntry(e))
	}
	return now
}

// write replaces the state files. The directory of plugins is one that people empty, or remove, to have these register
// again.
func (f files) write(s snapshot) error {
	return errors.Join(os.MkdirAll(filepath.Dir(f.devices), pluginsMode), statefile.WriteCPU(f.cpus, s.cpus),
		statefile.WriteMemory(f.memory, s.memory), statefile.WriteDevices(f.devices, s.devices))
}

// recall takes over what an earlier run, or a kubelet, has left. What doesn't fit the machine or the policy any more is
// released, and said. A file that can't be used is passed over. Pods whose devices were written down before the machine
// was booted, and that weren't said to have any since, don't run: their plugins are asked again.
func (h *holdings) recall(f files, before map[string]topic.Allocation, booted time.Time, log *slog.Logger) {
	if saved, err := statefile.ReadCPU(f.cpus); usable(log, f.cpus, err) {
		entries := cpus.Entries{}
		for uid, containers := range saved.Containers {
			entries[types.UID(uid)] = containers
		}
		for _, r := range h.cpus.Adopt(saved.Policy, entries) {
			log.Warn("a container's own CPUs are shared again", "uid", string(r.Pod), "container", r.Container,
				"cpus", r.CPUs.String(), "reason", r.Why)
		}
	}
	if saved, err := statefile.ReadMemory(f.memory); usable(log, f.memory, err) {
		for _, r := range h.memory.Adopt(saved.Entries) {
			logReleased(log, r)
		}
	}
	if saved, err := statefile.ReadDevices(f.devices); usable(log, f.devices, err) {
		kept := devices.Checkpoint{RegisteredDevices: saved.Registered, Stale: map[string]bool{}}
		info, err := os.Stat(f.devices)
		old := err == nil && info.ModTime().Before(booted)
		for _, e := range saved.Entries {
			kept.PodDeviceEntries = append(kept.PodDeviceEntries, devices.Entry(e))
			kept.Stale[e.PodUID] = old && before[e.PodUID].Phase != topic.Allocated
		}
		h.devices.Adopt(kept)
	}
}

func logReleased(log *slog.Logger, r memory.Released) {
	log.Warn("a container's own memory is anybody's again", "uid", r.UID, "container", r.Container, "reason", r.Why)
}

// usable reports whether a state file was read. One that isn't there is no fault.
func usable(log *slog.Logger, path string, err error) bool {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Error("can't use a state file, going on without it: others may get what pods have that run",
			"file", path, "error", err)
	}
	return err == nil
}
