package stats

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
	"kubelot.dev/daemon/disk"
)

// figures are all readings that a summary is made of. What is nil could not be read or wasn't asked for.
type figures struct {
	view  view
	usage *usage
	boot  time.Time
	// now is when the filesystems were read.
	now time.Time
	// notBefore is from when on the caller can use what pods use; zero where it takes any.
	notBefore time.Time

	rootFS *disk.Filesystem
	images images
	layers map[string]layer
	// volumes and files are by pod UID.
	volumes map[string]map[string]volumeUsage
	files   map[string]podFiles
}

// build makes the kubelet's summary (k8s.io/kubelet/pkg/apis/stats/v1alpha1) of the figures that are asked for.
func build(f *figures, req topic.SummaryRequest) statsapi.Summary {
	s := statsapi.Summary{Node: f.node(req.OnlyCPUAndMemory), Pods: []statsapi.PodStats{}}
	for i := range f.view.pods {
		if p, ok := f.pod(&f.view.pods[i], req); ok {
			s.Pods = append(s.Pods, p)
		}
	}
	return s
}

// told is the time that a pod's figure has in the answer, as topic.SummaryRequest says.
func (f *figures) told(at time.Time) time.Time {
	if last := f.notBefore.Add(-time.Second); at.Before(f.notBefore) && at.After(last) {
		return last
	}
	return at
}

func (f *figures) node(only bool) statsapi.NodeStats {
	r := f.usage.node
	n := statsapi.NodeStats{
		NodeName: f.view.node, StartTime: metav1.NewTime(f.boot),
		CPU: cpuStats(&r), Memory: memoryStats(&r, f.view.machine.MemoryBytes), Swap: swapStats(&r, f.view.machine.SwapBytes),
		SystemContainers: f.system(only),
	}
	if only {
		return n
	}
	n.IO = ioStats(&r)
	n.Network = networkStats(r.At, f.usage.network)
	if f.rootFS != nil {
		n.Fs = f.local()
		n.Fs.UsedBytes, n.Fs.InodesUsed = new(f.rootFS.Used), new(f.rootFS.Inodes-f.rootFS.InodesFree)
	}
	n.Runtime = &statsapi.RuntimeStats{ImageFs: f.images.image.stats(), ContainerFs: f.images.container.stats()}
	n.Rlimit = &statsapi.RlimitStats{Time: metav1.NewTime(r.At)}
	if limit := f.view.machine.PIDLimit; limit > 0 {
		n.Rlimit.MaxPID = &limit
	}
	if f.usage.threads > 0 {
		n.Rlimit.NumOfRunningProcesses = &f.usage.threads
	}
	return n
}

func (f *figures) system(only bool) []statsapi.ContainerStats {
	var list []statsapi.ContainerStats
	for _, name := range slices.Sorted(maps.Keys(f.usage.system)) {
		r := f.usage.system[name]
		c := statsapi.ContainerStats{
			Name: name, StartTime: metav1.NewTime(r.Created),
			CPU: cpuStats(&r), Memory: memoryStats(&r, 0), Swap: swapStats(&r, 0),
		}
		if name == statsapi.SystemContainerPods && c.Memory != nil && c.Memory.AvailableBytes == nil {
			// Pods without a limit of theirs have the machine's memory.
			c.Memory.AvailableBytes = available(f.view.machine.MemoryBytes, r.Memory.WorkingSet)
		}
		if !only {
			c.IO = ioStats(&r)
		}
		list = append(list, c)
	}
	return list
}

func (f *figures) pod(v *podView, req topic.SummaryRequest) (statsapi.PodStats, bool) {
	only := req.OnlyCPUAndMemory
	u, ok := f.usage.pods[v.ref.UID]
	if !ok && only {
		return statsapi.PodStats{}, false
	}
	p := statsapi.PodStats{
		PodRef:     statsapi.PodReference{Name: v.ref.Name, Namespace: v.ref.Namespace, UID: v.ref.UID},
		StartTime:  metav1.NewTime(v.created),
		Containers: []statsapi.ContainerStats{},
	}
	if ok {
		p.CPU, p.Memory, p.Swap = cpuStats(&u.reading), memoryStats(&u.reading, 0), swapStats(&u.reading, 0)
	}
	if p.Memory != nil {
		p.Memory.Time = metav1.NewTime(f.told(u.At))
	}
	var processes uint64
	for _, c := range v.containers {
		if !c.running {
			continue
		}
		r := u.containers[c.id]
		p.Containers = append(p.Containers, f.container(v, &c, &r, only))
		if r.Tasks != nil {
			processes += r.Tasks.Processes
		}
	}
	if ok && (!only || req.Processes) && !u.At.Before(f.notBefore) {
		p.ProcessStats = &statsapi.ProcessStats{ProcessCount: &processes}
	}
	if only {
		return p, true
	}
	if ok {
		p.IO = ioStats(&u.reading)
		p.Network = networkStats(u.At, u.network)
	}
	p.VolumeStats = f.podVolumes(v)
	p.EphemeralStorage = f.ephemeral(v, p.Containers)
	return p, true
}

func (f *figures) container(v *podView, c *containerView, r *reading, only bool) statsapi.ContainerStats {
	s := statsapi.ContainerStats{
		Name: c.name, StartTime: metav1.NewTime(c.created),
		CPU: cpuStats(r), Memory: memoryStats(r, 0), Swap: swapStats(r, 0),
	}
	if only {
		return s
	}
	s.IO = ioStats(r)
	if l, ok := f.layers[c.id]; ok {
		s.Rootfs = l.stats()
		s.Rootfs.Time = metav1.NewTime(f.told(l.at))
	}
	if files, ok := f.files[v.ref.UID]; ok && f.rootFS != nil {
		logs := files.logs[c.name]
		s.Logs = f.local()
		s.Logs.Time = metav1.NewTime(f.told(files.at))
		s.Logs.UsedBytes, s.Logs.InodesUsed = &logs.Bytes, &logs.Inodes
	}
	return s
}

func (f *figures) podVolumes(v *podView) []statsapi.VolumeStats {
	var list []statsapi.VolumeStats
	for _, volume := range v.volumes {
		u, ok := f.volumes[v.ref.UID][volume.name]
		if !ok {
			continue
		}
		s := statsapi.VolumeStats{Name: volume.name, FsStats: filesystemStats(f.told(u.at), u.fs)}
		s.UsedBytes, s.InodesUsed = &u.usage.Bytes, &u.usage.Inodes
		if volume.claim != "" {
			s.PVCRef = &statsapi.PVCReference{Name: volume.claim, Namespace: v.ref.Namespace}
		}
		list = append(list, s)
	}
	return list
}

// ephemeral is the pod's local storage: the writable layers and logs of its containers, what it has in volumes on the
// node's disk, and the files that the agent made for it.
func (f *figures) ephemeral(v *podView, containers []statsapi.ContainerStats) *statsapi.FsStats {
	if f.rootFS == nil {
		return nil
	}
	var sum disk.Usage
	at := f.now
	for _, c := range containers {
		for _, fs := range []*statsapi.FsStats{c.Rootfs, c.Logs} {
			if fs != nil {
				sum = sum.Add(disk.Usage{Bytes: deref(fs.UsedBytes), Inodes: deref(fs.InodesUsed)})
			}
		}
	}
	for _, volume := range v.volumes {
		if u, ok := f.volumes[v.ref.UID][volume.name]; ok && volume.ephemeral {
			sum = sum.Add(u.usage)
		}
	}
	sum = sum.Add(f.files[v.ref.UID].other)
	s := f.local()
	s.Time = metav1.NewTime(at)
	s.UsedBytes, s.InodesUsed = &sum.Bytes, &sum.Inodes
	return s
}

func deref(n *uint64) uint64 {
	if n == nil {
		return 0
	}
	return *n
}

// local is the node's filesystem, without a use.
func (f *figures) local() *statsapi.FsStats {
	s := filesystemStats(f.now, *f.rootFS)
	return &s
}

func filesystemStats(at time.Time, fs disk.Filesystem) statsapi.FsStats {
	return statsapi.FsStats{
		Time: metav1.NewTime(at), AvailableBytes: &fs.Available, CapacityBytes: &fs.Capacity, Inodes: &fs.Inodes,
		InodesFree: &fs.InodesFree,
	}
}

func (l *layer) stats() *statsapi.FsStats {
	if l == nil {
		return nil
	}
	s := statsapi.FsStats{Time: metav1.NewTime(l.at)}
	if l.fs != nil {
		s = filesystemStats(l.at, *l.fs)
	}
	s.UsedBytes = &l.usage.Bytes
	if l.inodes {
		s.InodesUsed = &l.usage.Inodes
	}
	return &s
}

func cpuStats(r *reading) *statsapi.CPUStats {
	if r.CPU == nil {
		return nil
	}
	s := &statsapi.CPUStats{
		Time: metav1.NewTime(r.At), UsageCoreNanoSeconds: &r.CPU.Total,
		PSI: pressureStats(r.CPU.Pressure),
	}
	if r.rated {
		s.UsageNanoCores = &r.nanoCores
	}
	return s
}

// memoryStats has what is available where there is a limit: the cgroup's or, for the node, its capacity.
func memoryStats(r *reading, capacity uint64) *statsapi.MemoryStats {
	m := r.Memory
	if m == nil {
		return nil
	}
	s := &statsapi.MemoryStats{
		Time: metav1.NewTime(r.At), UsageBytes: &m.Usage, WorkingSetBytes: &m.WorkingSet, RSSBytes: &m.RSS,
		PageFaults: &m.Faults, MajorPageFaults: &m.MajorFaults, PSI: pressureStats(m.Pressure),
	}
	switch {
	case capacity > 0:
		s.AvailableBytes = available(capacity, m.WorkingSet)
	case m.Limit != cgroup.Unlimited:
		s.AvailableBytes = available(m.Limit, m.WorkingSet)
	}
	return s
}

func available(limit, used uint64) *uint64 { return new(limit - min(limit, used)) }

func swapStats(r *reading, capacity uint64) *statsapi.SwapStats {
	m := r.Memory
	if m == nil {
		return nil
	}
	s := &statsapi.SwapStats{Time: metav1.NewTime(r.At), SwapUsageBytes: &m.Swap}
	switch {
	case r.path == "/":
		s.SwapAvailableBytes = available(capacity, m.Swap)
	case m.SwapLimit != cgroup.Unlimited:
		s.SwapAvailableBytes = available(m.SwapLimit, m.Swap)
	}
	return s
}

func ioStats(r *reading) *statsapi.IOStats {
	if r.At.IsZero() {
		return nil
	}
	return &statsapi.IOStats{Time: metav1.NewTime(r.At), PSI: pressureStats(r.IOPressure)}
}

func pressureStats(p *cgroup.Pressure) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	return &statsapi.PSIStats{Some: stall(p.Some), Full: stall(p.Full)}
}

func stall(s cgroup.Stall) statsapi.PSIData {
	return statsapi.PSIData{Total: s.Total, Avg10: s.Avg10, Avg60: s.Avg60, Avg300: s.Avg300}
}

// mainInterface is what the kubelet takes for a network's own figures.
const mainInterface = "eth0"

func networkStats(at time.Time, interfaces []cgroup.Interface) *statsapi.NetworkStats {
	if interfaces == nil {
		return nil
	}
	s := &statsapi.NetworkStats{Time: metav1.NewTime(at)}
	for _, i := range interfaces {
		one := statsapi.InterfaceStats{
			Name: i.Name, RxBytes: &i.RxBytes, RxErrors: &i.RxErrors, TxBytes: &i.TxBytes,
			TxErrors: &i.TxErrors,
		}
		if i.Name == mainInterface {
			s.InterfaceStats = one
		}
		s.Interfaces = append(s.Interfaces, one)
	}
	return s
}
