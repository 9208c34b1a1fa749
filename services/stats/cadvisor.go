package stats

import (
	"context"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/google/cadvisor/lib/machine"
	"golang.org/x/sys/unix"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/text"
)

// metricsInput is what /metrics/cadvisor is made of.
type metricsInput struct {
	view     view
	usage    *usage
	rootFS   *disk.Filesystem
	oomKills map[string]uint64
	// sockets and cores are those of the processor, 0 where it doesn't tell.
	sockets, cores int
}

// metrics reads what the page needs.
func (a *answers) metrics(ctx context.Context, ooms *oomKills) (*metricsInput, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	v, err := a.view(ctx, nil)
	if err != nil {
		return nil, err
	}
	in := &metricsInput{view: v, oomKills: ooms.counts(), usage: a.usage(ctx, v, everything, false, 0)}
	if fs, ok := a.sources.rootfs(ctx, diskAge); ok {
		in.rootFS = &fs
	}
	if cpuinfo, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		in.sockets, in.cores = machine.GetSockets(cpuinfo), machine.GetPhysicalCores(cpuinfo)
	}
	return in, nil
}

// writeCadvisor writes cAdvisor's metrics, one family after the other; nil is what could not be read.
func writeCadvisor(to io.Writer, in *metricsInput) error {
	w := text.NewWriter(to)
	containers, machines := 1.0, 1.0
	if in != nil {
		writeVersion(w, in)
		if !in.usage.node.At.IsZero() {
			containers = 0
			writeSubjects(w, in.subjects())
		}
		machines = 0
		writeMachine(w, in)
	}
	w.Family("container_scrape_error", text.Gauge, "1 if the figures could not be read, 0 otherwise")
	w.Sample("", containers, time.Time{})
	w.Family("machine_scrape_error", text.Gauge, "1 if the figures could not be read, 0 otherwise")
	w.Sample("", machines, time.Time{})
	return w.Flush()
}

func writeSubjects(w *text.Writer, subjects []subject) {
	for _, f := range families() {
		w.Family(f.name, f.kind, f.help)
		for i := range subjects {
			s := &subjects[i]
			at := s.r.At
			if f.fixed {
				at = time.Time{}
			}
			f.values(s, func(labels text.Labels, value float64) { w.Sample(s.labels.And(labels), value, at) })
		}
	}
}

// cgroupLabels are the labels that every metric of a cgroup has.
func cgroupLabels(id string, container containerView, ref topic.Ref) text.Labels {
	return text.Pairs("container", container.name, "id", id, "image", container.image, "name", container.id, "namespace",
		ref.Namespace, "pod", ref.Name)
}

// subjects are the cgroups that metrics are written for: the node, its system containers, the QoS classes, pods,
// sandboxes and containers, and containers that have ended in an out-of-memory kill, with nothing but that.
func (in *metricsInput) subjects() []subject {
	var list []subject
	add := func(r *reading, labels text.Labels) *subject {
		list = append(list, subject{r: r, labels: labels, devices: in.usage.devices})
		return &list[len(list)-1]
	}
	root := in.usage.node
	if root.Memory != nil {
		m := *root.Memory
		m.Limit, m.SwapBound = in.view.machine.MemoryBytes, in.view.machine.SwapBytes
		root.Memory = &m
	}
	node := add(&root, cgroupLabels("/", containerView{}, topic.Ref{}))
	node.network, node.disk = in.usage.network, in.nodeDisk()
	for i := range in.usage.classes {
		r := &in.usage.classes[i]
		add(r, cgroupLabels(r.path, containerView{}, topic.Ref{}))
	}
	for _, name := range slices.Sorted(maps.Keys(in.usage.system)) {
		r := in.usage.system[name]
		if !slices.ContainsFunc(list, func(other subject) bool { return other.r.path == r.path }) {
			add(&r, cgroupLabels(r.path, containerView{}, topic.Ref{}))
		}
	}
	for i := range in.view.pods {
		in.pod(&in.view.pods[i], add)
	}
	return list
}

func (in *metricsInput) pod(pod *podView, add func(*reading, text.Labels) *subject) {
	u, ok := in.usage.pods[pod.ref.UID]
	if !ok {
		return
	}
	// A cgroup's files don't tell for sure when it was made; the runtime does.
	u.Created = pod.created
	add(&u.reading, cgroupLabels(u.path, containerView{}, pod.ref))
	if r, ok := u.containers[pod.sandbox]; ok {
		r.Created = pod.created
		add(&r, cgroupLabels(r.path, containerView{id: pod.sandbox}, pod.ref)).network = u.network
	}
	for _, c := range pod.containers {
		r, ok := u.containers[c.id]
		if !ok {
			if kills := in.oomKills[c.id]; kills > 0 {
				gone := reading{path: path.Join(u.path, c.id)}
				gone.At, gone.Created = u.At, c.created
				add(&gone, cgroupLabels(gone.path, c, pod.ref)).oomKills = kills
			}
			continue
		}
		r.Created = c.created
		s := add(&r, cgroupLabels(r.path, c, pod.ref))
		s.oomKills = in.oomKills[c.id]
		if r.Memory != nil {
			s.oomKills = max(s.oomKills, r.Memory.OOMKills)
		}
	}
}

// nodeDisk is the node's filesystem under the name of its device.
func (in *metricsInput) nodeDisk() *nodeDisk {
	if in.rootFS == nil {
		return nil
	}
	fs := in.rootFS
	labels := deviceLabels(in.usage.devices, uint64(unix.Major(fs.Device)), uint64(unix.Minor(fs.Device)))
	return &nodeDisk{labels: labels, capacity: fs.Capacity, used: fs.Used, inodes: fs.Inodes, inodesFree: fs.InodesFree}
}

func writeVersion(w *text.Writer, in *metricsInput) {
	w.Family("cadvisor_version_info", text.Gauge, "Always 1; the labels say which kernel and operating system this is.")
	w.Sample(text.Pairs("cadvisorRevision", "", "cadvisorVersion", "", "dockerVersion", "",
		"kernelVersion", in.view.machine.KernelVersion, "osVersion", in.view.machine.OSImage), 1, time.Time{})
}

func writeMachine(w *text.Writer, in *metricsInput) {
	m := in.view.machine
	labels := text.Pairs("boot_id", m.BootID, "machine_id", m.MachineID, "system_uuid", m.SystemUUID)
	for _, one := range []struct {
		name, help string
		value      uint64
		always     bool
	}{
		{"machine_cpu_cores", "Logical cores.", uint64(m.NumCores), true},
		{"machine_cpu_physical_cores", "Physical cores.", uint64(in.cores), false},
		{"machine_cpu_sockets", "Sockets of processors.", uint64(in.sockets), false},
		{"machine_memory_bytes", "Memory in bytes.", m.MemoryBytes, true},
		{"machine_swap_bytes", "Swap space in bytes.", m.SwapBytes, true},
	} {
		w.Family(one.name, text.Gauge, one.help)
		if one.always || one.value > 0 {
			w.Sample(labels, float64(one.value), time.Time{})
		}
	}
}
