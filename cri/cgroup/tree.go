package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/cri/cgroupname"
)

// mountPoint is where the hierarchies are mounted: systemd's and every runtime's convention.
const mountPoint = "/sys/fs/cgroup"

// Tree is the machine's cgroup hierarchies. It may be read from several goroutines.
type Tree struct {
	// fsRoot is put before every path; tests have recorded trees.
	fsRoot string
	v2     bool
	// configured is the driver of the configuration; see cgroupname.Driver.
	configured string
	root       cgroupname.Name
	pool       sync.Pool
}

// files are a reader with a buffer that is used again.
func (t *Tree) files() *files {
	if f, ok := t.pool.Get().(*files); ok {
		return f
	}
	return &files{buf: make([]byte, 8<<10)}
}

// New looks at which version the machine has below fsRoot ("/" but in tests). driver and root are cgroupDriver and
// cgroupRoot.
func New(fsRoot, driver, root string) (*Tree, error) {
	name, err := cgroupname.ParseRoot(root)
	if err != nil {
		return nil, err
	}
	t := &Tree{fsRoot: fsRoot, configured: driver, root: name}
	// The file is in every cgroup of version 2 and in none of version 1.
	_, err = os.Lstat(filepath.Join(fsRoot, mountPoint, "cgroup.controllers"))
	t.v2 = err == nil
	return t, nil
}

// Kubepods is the cgroup that holds all pods.
func (t *Tree) Kubepods() string { return t.Classes()[0] }

// Classes are kubepods and those of the QoS classes below it.
func (t *Tree) Classes() []string {
	var paths []string
	driver := t.driver()
	for _, class := range cgroupname.Classes(t.root) {
		paths = append(paths, class.Path(driver))
	}
	return paths
}

func (t *Tree) driver() string {
	return cgroupname.Driver(t.dir("memory", "/"), t.root, t.configured)
}

func (t *Tree) proc() string { return path.Join(t.fsRoot, "/proc") }

// dir is the cgroup's directory in the hierarchy of a controller.
func (t *Tree) dir(controller, cgroup string) string {
	if t.v2 {
		controller = ""
	}
	return path.Join(t.fsRoot, mountPoint, controller, cgroup)
}

// Pods are the pods' cgroups by UID.
func (t *Tree) Pods() (map[string]string, error) {
	pods := map[string]string{}
	driver := t.driver()
	for _, class := range cgroupname.Classes(t.root) {
		classPath := class.Path(driver)
		entries, err := os.ReadDir(t.dir("memory", classPath))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the cgroups of pods: %w", err)
		}
		for _, e := range entries {
			if uid, ok := cgroupname.PodUID(class, driver, e.Name()); ok && e.IsDir() {
				pods[uid] = path.Join(classPath, e.Name())
			}
		}
	}
	return pods, nil
}

// Containers are the cgroups of the containers and sandboxes right below a pod's, by their IDs.
func (t *Tree) Containers(pod string) map[string]string {
	entries, err := os.ReadDir(t.dir("memory", pod))
	if err != nil {
		return nil
	}
	containers := map[string]string{}
	for _, e := range entries {
		if id, ok := cgroupname.ContainerID(e.Name()); ok && e.IsDir() && !strings.Contains(e.Name(), "conmon") {
			containers[id] = path.Join(pod, e.Name())
		}
	}
	return containers
}

// Read takes a sample. Without all it has CPU time and memory only, which costs a third.
func (t *Tree) Read(cgroup string, all bool) (Sample, error) {
	s := Sample{At: time.Now()}
	var err error
	if s.Created, err = created(t.dir("memory", cgroup)); err != nil {
		return s, fmt.Errorf("cgroup %s: %w", cgroup, err)
	}
	f := t.files()
	defer t.pool.Put(f)
	if t.v2 {
		s.CPU, s.Memory = t.cpu2(f, cgroup, all), t.memory2(f, cgroup, all)
	} else {
		s.CPU, s.Memory = t.cpu1(f, cgroup, all), t.memory1(f, cgroup, all)
	}
	if !t.v2 && cgroup == "/" {
		t.machinePressure(f, &s)
	}
	if !all {
		return s, nil
	}
	if t.v2 {
		s.IO, s.IOPressure = parseIOStat(f.read(t.dir("io", cgroup), "io.stat")), t.pressure(f, cgroup, "io")
	} else {
		s.IO = t.io1(f, cgroup)
	}
	s.Tasks = t.tasks(f, cgroup)
	return s, nil
}

// machinePressure adds the machine's pressure: version 1 has none of any cgroup.
func (t *Tree) machinePressure(f *files, s *Sample) {
	if s.CPU != nil {
		s.CPU.Pressure = t.pressure(f, "/", "cpu")
	}
	if s.Memory != nil {
		s.Memory.Pressure = t.pressure(f, "/", "memory")
	}
	s.IOPressure = t.pressure(f, "/", "io")
}

// CPUTime is the cgroup's CPU time in nanoseconds, for a second sample a moment later.
func (t *Tree) CPUTime(cgroup string) (at time.Time, total uint64, ok bool) {
	f := t.files()
	defer t.pool.Put(f)
	var c *CPU
	at = time.Now()
	if t.v2 {
		c = t.cpu2(f, cgroup, false)
	} else {
		c = t.cpu1(f, cgroup, false)
	}
	if c == nil {
		return at, 0, false
	}
	return at, c.Total, true
}

func (t *Tree) tasks(f *files, cgroup string) *Tasks {
	dir := t.dir("pids", cgroup)
	tasks := &Tasks{Processes: f.lines(dir, "cgroup.procs") + f.lines(dir, nestedProcs)}
	if limit := f.number(dir, "pids.max", Unlimited); limit != Unlimited {
		tasks.ThreadsMax = limit
	}
	tasks.Threads = f.number(dir, "pids.current", 0)
	return tasks
}

// nestedProcs has the processes of a container whose cgroup has another one in it: so does crun with systemd.
const nestedProcs = "container/cgroup.procs"

// Network are the interfaces that the cgroup's first process sees.
func (t *Tree) Network(cgroup string) []Interface {
	f := t.files()
	defer t.pool.Put(f)
	dir := t.dir("pids", cgroup)
	line, _, _ := strings.Cut(cmp.Or(string(f.read(dir, "cgroup.procs")), string(f.read(dir, nestedProcs))), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid <= 0 {
		return nil
	}
	return parseNetDev(f.read(t.proc(), line+"/net/dev"))
}

// HostNetwork are the machine's own interfaces.
func (t *Tree) HostNetwork() []Interface {
	f := t.files()
	defer t.pool.Put(f)
	return parseNetDev(f.read(t.proc(), "1/net/dev"))
}

// Own are the cgroups of a process, the deepest first where the hierarchies of version 1 differ.
func (t *Tree) Own() string {
	data, err := os.ReadFile(path.Join(t.proc(), "self/cgroup"))
	if err != nil {
		return ""
	}
	own := ""
	for line := range strings.Lines(string(data)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && (fields[1] == "" && t.v2 || strings.Contains(","+fields[1]+",", ",memory,")) {
			own = fields[2]
		}
	}
	return own
}

// Disks are the machine's block devices that were ever used, with their names, from /proc/diskstats.
func (t *Tree) Disks() (io []DeviceIO, names map[[2]uint64]string) {
	const sector = 512
	f := t.files()
	defer t.pool.Put(f)
	names = map[[2]uint64]string{}
	eachLine(f.read(t.proc(), "diskstats"), func(line []byte) {
		fields := strings.Fields(string(line))
		if len(fields) < 3 {
			return
		}
		var n [10]uint64
		for i := range min(len(fields), len(n)) {
			// The third is the name.
			n[i], _ = strconv.ParseUint(fields[i], 10, 64)
		}
		names[[2]uint64{n[0], n[1]}] = "/dev/" + fields[2]
		if n[3]+n[7] > 0 {
			io = append(io, DeviceIO{
				Major: n[0], Minor: n[1], Reads: n[3], ReadBytes: n[5] * sector, Writes: n[7],
				WrittenBytes: n[9] * sector,
			})
		}
	})
	return io, names
}

// BootTime is when the machine started.
func BootTime() (time.Time, bool) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, false
	}
	return time.Now().Add(-time.Duration(now.Nano())).Truncate(time.Second), true
}
