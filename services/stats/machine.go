package stats

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/utils/sysinfo"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/daemon/disk"
)

const (
	hugePagesDir = "/sys/kernel/mm/hugepages/"
	bootIDFile   = "/proc/sys/kernel/random/boot_id"
	cgroupRoot   = "/sys/fs/cgroup"
)

// machineIDFiles are tried in this order, as systemd and D-Bus define them.
var machineIDFiles = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

// readMachine reads the facts of the machine; rootDir is the kubelet's root directory, whose filesystem
// is the node's. Facts that can't be read are left empty and named in the error.
func readMachine(rootDir string) (topic.Machine, error) {
	var errs []error
	note := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	sys := sysfs.NewRealSysFs()
	m := topic.Machine{
		NumCores:      runtime.NumCPU(),
		KernelVersion: machine.KernelVersion(),
		OSImage:       machine.ContainerOsVersion(),
		CgroupVersion: cgroupVersion(cgroupRoot),
	}
	if _, cores, err := machine.GetTopology(sys); err == nil && cores > 0 {
		m.NumCores = cores
	}
	var err error
	m.MemoryBytes, err = machine.GetMachineMemoryCapacity()
	note("memory", err)
	m.SwapBytes, err = machine.GetMachineSwapCapacity()
	note("swap", err)
	m.HugePages, err = hugePages(sys)
	note("huge pages", err)
	m.RootFS, err = filesystem(rootDir)
	note("root filesystem", err)
	m.PIDLimit, err = cgroup.PIDLimit("/proc")
	note("pid limit", err)
	m.MachineID, err = firstFile(machineIDFiles...)
	note("machine ID", err)
	m.BootID, err = firstFile(bootIDFile)
	note("boot ID", err)
	m.SystemUUID, err = sysinfo.GetSystemUUID(sys)
	note("system UUID", err)
	return m, errors.Join(errs...)
}

func hugePages(sys sysfs.SysFs) (map[uint64]uint64, error) {
	sizes, err := sysinfo.GetHugePagesInfo(sys, hugePagesDir)
	if err != nil {
		return nil, err
	}
	pages := make(map[uint64]uint64, len(sizes))
	for _, s := range sizes {
		pages[s.PageSize] = s.NumPages
	}
	return pages, nil
}

// filesystem measures the filesystem that dir is on, or will be on.
func filesystem(dir string) (topic.Filesystem, error) {
	fs, err := disk.StatToBe(dir)
	if err != nil {
		return topic.Filesystem{}, err
	}
	return topic.Filesystem{Path: dir, CapacityBytes: fs.Capacity, Inodes: fs.Inodes}, nil
}

// firstFile is the trimmed content of the first file that has any.
func firstFile(paths ...string) (string, error) {
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if text := strings.TrimSpace(string(data)); err == nil && text != "" {
			return text, nil
		}
	}
	return "", fmt.Errorf("none of %s can be read or holds anything", strings.Join(paths, ", "))
}

// cgroupVersion is 2 where the root of the hierarchy is the unified one.
func cgroupVersion(root string) int {
	var s unix.Statfs_t
	if err := unix.Statfs(root, &s); err == nil && s.Type == unix.CGROUP2_SUPER_MAGIC {
		return 2
	}
	return 1
}
