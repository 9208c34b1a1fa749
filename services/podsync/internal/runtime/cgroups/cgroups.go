package cgroups

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/cri/cgroupname"
)

// The drivers.
const (
	driverSystemd  = cgroupname.DriverSystemd
	driverCgroupfs = cgroupname.DriverCgroupfs
)

// hugetlb is the controller of huge pages, which a kernel may lack.
const hugetlb = "hugetlb"

// unifiedRoot is where version 2 is mounted (systemd's and every runtime's convention).
const unifiedRoot = "/sys/fs/cgroup"

// Config is how the node's cgroups are laid out.
type Config struct {
	// Driver is "systemd" or "cgroupfs"; empty where UseDriver says it later.
	Driver string
	// Root is the cgroup below which kubepods is made (cgroupRoot); empty is the root of the hierarchy.
	Root string
	// PerQOS is cgroupsPerQOS; without it pods have no cgroup of their own.
	PerQOS bool
	// EnforcePods holds kubepods to the node's limits (enforceNodeAllocatable has "pods").
	EnforcePods bool
	// CPUCFSQuota bounds CPU by the limits, in periods of CPUCFSQuotaPeriod.
	CPUCFSQuota       bool
	CPUCFSQuotaPeriod time.Duration
	// StaticCPUs is true where guaranteed containers get CPUs of their own (cpuManagerPolicy static), and no quota holds
	// their pods.
	StaticCPUs bool
	// PodPidsLimit bounds the processes of a pod; 0 or less is no bound.
	PodPidsLimit int64
	// Memory is how the memory that pods request is protected.
	Memory Protection
	// Observe is called with how long operations took: create, update and destroy. It may be nil.
	Observe func(operation string, took time.Duration)
}

// LimitsError means that a cgroup is there and its limits could not be set.
type LimitsError struct {
	Cgroup string
	Err    error
}

func (e *LimitsError) Error() string {
	return fmt.Sprintf("set the limits of cgroup %s: %v", e.Cgroup, e.Err)
}

func (e *LimitsError) Unwrap() error { return e.Err }

// Manager owns the cgroups of pods. Create, Update and Destroy may be called at once for different pods;
// UseDriver, EnsureNode, Hold and UpdateQOS by one goroutine at a time. Each may wait for systemd.
type Manager struct {
	layout
	cfg Config
	v2  bool
	// pageSizes are the huge pages that the kernel accounts for, such as 2MB; empty without the controller.
	pageSizes []string
	qos       classes
	patience  time.Duration // of Destroy
}

// New looks at the machine's cgroup hierarchies; it changes nothing.
func New(cfg Config) (*Manager, error) {
	m, err := newManager(cfg, Unified())
	if err == nil && cfg.Driver != "" {
		err = m.UseDriver(cfg.Driver)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// UseDriver has cgroups be named and made by the driver. It is called before any other method.
func (m *Manager) UseDriver(driver string) error {
	switch {
	case driver != driverSystemd && driver != driverCgroupfs:
		return fmt.Errorf("cgroupDriver is %q: set it to %q or %q, as in the runtime's configuration",
			driver, driverSystemd, driverCgroupfs)
	case driver == driverSystemd && !systemd.IsRunningSystemd():
		return errors.New("cgroupDriver is systemd, and systemd doesn't run here: set cgroupDriver: cgroupfs, " +
			"and the same in the runtime's configuration")
	}
	m.driver = driver
	return nil
}

func newManager(cfg Config, v2 bool) (*Manager, error) {
	root, err := cgroupname.ParseRoot(cfg.Root)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, layout: layout{driver: cfg.Driver, root: root, kubepods: root.Child(cgroupname.Kubepods)},
		v2: v2, patience: destroyPatience,
	}
	m.cfg.Memory.On = cfg.Memory.On && v2
	m.qos = classes{at: &m.layout, v2: v2, memory: m.cfg.Memory, write: m.set, usage: m.memoryUsage}
	if v2 {
		m.mounts = map[string]string{"": unifiedRoot}
		controllers, err := cgroups.GetAllSubsystems()
		if err != nil {
			return nil, fmt.Errorf("find the cgroup controllers: %w", err)
		}
		if slices.Contains(controllers, hugetlb) {
			m.pageSizes = cgroups.HugePageSizes()
		}
		return m, nil
	}
	// The library knows the controllers that runtimes use; the others are left alone.
	top, err := fs.NewManager(&cgroups.Cgroup{Path: "/", Resources: &cgroups.Resources{SkipDevices: true}}, nil)
	if err != nil {
		return nil, fmt.Errorf("find the cgroup hierarchies: %w: mount them under %s", err, unifiedRoot)
	}
	m.mounts = map[string]string{}
	for controller, p := range top.GetPaths() {
		m.mounts[controller] = filepath.Clean(p)
	}
	for _, vital := range []string{"cpu", "memory"} {
		if m.mounts[vital] == "" {
			return nil, fmt.Errorf("the cgroup controller %q is not mounted: mount it at %s/%s, or boot with cgroup v2",
				vital, unifiedRoot, vital)
		}
	}
	if m.mounts[hugetlb] != "" {
		m.pageSizes = cgroups.HugePageSizes()
	}
	return m, nil
}

// EnsureNode makes kubepods and the cgroups of the QoS classes, and sets kubepods' limits: to what pods may use (see
// NodeLimits), or, where that isn't enforced, to its share of the machine's capacity. The classes keep the CPU shares
// and the memory that they have: their pods run on through a restart, and UpdateQOS knows what they request. A
// LimitsError means that the cgroups are there and pods can run, as when pods use more memory than a limit that was
// lowered; try again later.
func (m *Manager) EnsureNode(capacity, allocatable corev1.ResourceList) error {
	if !m.cfg.PerQOS {
		return nil
	}
	pods := unenforced(capacity)
	if m.cfg.EnforcePods {
		pods = enforced(allocatable)
	}
	nodeErr := m.ensure(m.kubepods, pods)
	var soft *LimitsError
	if nodeErr != nil && !errors.As(nodeErr, &soft) {
		return nodeErr
	}
	if err := m.ensure(m.kubepods.Child(cgroupname.BestEffort), Limits{CPUShares: minShares}); err != nil {
		return err
	}
	has := m.qos.has
	if has.shares == 0 {
		has = m.qos.found()
	}
	if err := m.ensure(m.kubepods.Child(cgroupname.Burstable), Limits{CPUShares: has.shares}); err != nil {
		return err
	}
	m.qos.has, m.qos.allocatable = has, allocatable.Memory().Value()
	return nodeErr
}

// Parent is the pod's cgroup as the CRI's cgroup_parent wants it: with both drivers the path. Without PerQOS it is
// empty, and the runtime has a parent of its own.
func (m *Manager) Parent(pod *corev1.Pod) string {
	n, err := m.podName(pod)
	if err != nil || !m.cfg.PerQOS {
		return ""
	}
	return m.path(n)
}

// Create makes the pod's cgroup with its limits and answers with Parent(pod). If it exists, only the limits are set.
func (m *Manager) Create(pod *corev1.Pod) (string, error) {
	if !m.cfg.PerQOS {
		return m.Parent(pod), nil
	}
	n, err := m.podName(pod)
	if err != nil {
		return "", err
	}
	if err := m.ensure(n, LimitsOf(pod, m.cfg)); err != nil {
		return "", err
	}
	return m.Parent(pod), nil
}

// Update sets the limits of the pod's cgroup again, as after an in-place resize.
func (m *Manager) Update(pod *corev1.Pod) error {
	if !m.cfg.PerQOS {
		return nil
	}
	n, err := m.podName(pod)
	if err != nil {
		return err
	}
	return m.set(n, LimitsOf(pod, m.cfg))
}

// Loosen lifts the CPU and memory limits of the pod's cgroup until Update.
func (m *Manager) Loosen(pod *corev1.Pod) error {
	if !m.cfg.PerQOS {
		return nil
	}
	n, err := m.podName(pod)
	if err != nil {
		return err
	}
	l := LimitsOf(pod, m.cfg)
	l.CPUQuota, l.Memory = unlimited, unlimited
	return m.set(n, l)
}

// MemoryLimit is what the pod's cgroup is held to, in bytes; 0 for no limit.
func (m *Manager) MemoryLimit(pod *corev1.Pod) int64 {
	if !m.cfg.PerQOS {
		return 0
	}
	return max(LimitsOf(pod, m.cfg).Memory, 0)
}

// MemoryUsage is what the pod's cgroup uses, in bytes, page cache included.
func (m *Manager) MemoryUsage(pod *corev1.Pod) (uint64, error) {
	n, err := m.podName(pod)
	if err != nil {
		return 0, err
	}
	return m.memoryUsage(n)
}

func (m *Manager) memoryUsage(n cgroupname.Name) (uint64, error) {
	lib, err := m.library(n, Limits{})
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", m.path(n), err)
	}
	stats, err := lib.GetStats()
	if err != nil {
		return 0, fmt.Errorf("cgroup %s: %w", m.path(n), err)
	}
	return stats.MemoryStats.Usage.Usage, nil
}

// timed has the time measured until its result is called.
func (m *Manager) timed(operation string) func() {
	if m.cfg.Observe == nil {
		return func() {}
	}
	began := time.Now()
	return func() { m.cfg.Observe(operation, time.Since(began)) }
}

// ensure makes the cgroup and sets its limits.
func (m *Manager) ensure(n cgroupname.Name, l Limits) error {
	defer m.timed("create")()
	lib, err := m.library(n, l)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", m.path(n), err)
	}
	// The PID -1 makes the cgroup and puts no process into it.
	if err := lib.Apply(-1); err != nil {
		return fmt.Errorf("create cgroup %s: %w: kubelot must run as root, with the cgroup hierarchies writable", m.path(n),
			err)
	}
	return m.apply(lib, n, l)
}

func (m *Manager) set(n cgroupname.Name, l Limits) error {
	defer m.timed("update")()
	lib, err := m.library(n, l)
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", m.path(n), err)
	}
	return m.apply(lib, n, l)
}

func (m *Manager) apply(lib cgroups.Manager, n cgroupname.Name, l Limits) error {
	if err := lib.Set(l.library(m.v2, m.pageSizes)); err != nil {
		return &LimitsError{Cgroup: m.path(n), Err: err}
	}
	return nil
}

// library is the library's manager of one cgroup. Handing it the paths saves it a reading of mountinfo for
// each controller.
func (m *Manager) library(n cgroupname.Name, l Limits) (cgroups.Manager, error) {
	cg := &cgroups.Cgroup{Resources: l.library(m.v2, m.pageSizes)}
	if m.driver != driverSystemd {
		cg.Path = n.Cgroupfs()
		return manager.NewWithPaths(cg, m.paths(n))
	}
	dir, slice := path.Split(m.path(n))
	cg.Systemd, cg.Name, cg.Parent = true, slice, "-.slice"
	if dir = strings.TrimSuffix(dir, "/"); dir != "" {
		cg.Parent = path.Base(dir)
	}
	return manager.NewWithPaths(cg, m.paths(n))
}

// Unified reports whether the machine has cgroup v2.
func Unified() bool { return cgroups.IsCgroup2UnifiedMode() }
