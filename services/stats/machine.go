package stats

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
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

// machineOf reads the machine's facts. rootDir is the kubelet's root directory, whose filesystem is the node's. The
// error names the facts that can't be read. They keep their last values, as the Node's capacity follows from them;
// what was never read is empty. There may be one reading at a time.
func machineOf(rootDir string) machineReader {
	var last topic.Machine
	return func() (topic.Machine, error) {
		err := readMachine(&last, rootDir)
		return last, err
	}
}

// readMachine reads the facts into m. One that can't be read is left as it is and named in the error.
func readMachine(m *topic.Machine, rootDir string) error {
	sys := sysfs.NewRealSysFs()
	m.KernelVersion, m.OSImage = machine.KernelVersion(), machine.ContainerOsVersion()
	m.CgroupVersion = cgroupVersion(cgroupRoot)
	if _, cores, err := machine.GetTopology(sys); err == nil && cores > 0 {
		m.NumCores = cores
	}
	m.NumCores = cmp.Or(m.NumCores, runtime.NumCPU())
	return errors.Join(
		fact("memory", &m.MemoryBytes, machine.GetMachineMemoryCapacity),
		fact("swap", &m.SwapBytes, machine.GetMachineSwapCapacity),
		fact("huge pages", &m.HugePages, func() (map[uint64]uint64, error) { return hugePages(sys) }),
		fact("root filesystem", &m.RootFS, func() (topic.Filesystem, error) { return filesystem(rootDir) }),
		fact("pid limit", &m.PIDLimit, func() (int64, error) { return cgroup.PIDLimit("/proc") }),
		fact("machine ID", &m.MachineID, func() (string, error) { return firstFile(machineIDFiles...) }),
		fact("boot ID", &m.BootID, func() (string, error) { return firstFile(bootIDFile) }),
		fact("system UUID", &m.SystemUUID, func() (string, error) { return sysinfo.GetSystemUUID(sys) }),
	)
}

// fact reads a fact. If that fails, the error names the fact, and a part that was read takes the place of nothing only.
func fact[T any](name string, to *T, read func() (T, error)) error {
	value, err := read()
	if err == nil || reflect.ValueOf(to).Elem().IsZero() {
		*to = value
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// hugePages are none where the kernel has no support for them. The library takes any failure for that.
func hugePages(sys sysfs.SysFs) (map[uint64]uint64, error) {
	if _, err := sys.GetHugePagesInfo(hugePagesDir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
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
