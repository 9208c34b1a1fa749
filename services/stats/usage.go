package stats

import (
	"context"
	"errors"
	"strings"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/cri/cgroup"
)

// secondSample is how long after the first one a second sample is taken where there is none to compare with.
const secondSample = 200 * time.Millisecond

// usage is one reading of the cgroups.
type usage struct {
	node    reading
	network []cgroup.Interface
	threads int64
	// devices are the names of block devices by their numbers.
	devices map[[2]uint64]string
	// system are the node's system containers by the names of the summary API.
	system map[string]reading
	// classes are kubepods and those below it that are no pod's.
	classes []reading
	pods    map[string]podUsage
}

// podUsage is one pod's.
type podUsage struct {
	reading
	network []cgroup.Interface
	// containers are those of containers and of the sandbox, by ID.
	containers map[string]reading
}

// reading is a sample with where it is from.
type reading struct {
	path string
	cgroup.Sample
	// nanoCores is the CPU use in billionths of a core; valid where rated.
	nanoCores uint64
	rated     bool
}

// cgroups reads cgroups. Its methods may be called at once.
type cgroups struct {
	tree  *cgroup.Tree
	rates *rates
	// system are the cgroups of system containers by name: the first that there is.
	system map[string][]string
}

// read takes a sample of the cgroup. One that is gone is no reading and no error.
func (r *cgroups) read(path string, all bool, errs *[]error) (reading, bool) {
	s, err := r.tree.Read(path, all)
	if err != nil {
		if !errors.Is(err, cgroup.ErrGone) {
			*errs = append(*errs, err)
		}
		return reading{}, false
	}
	u := reading{path: path, Sample: s}
	if s.CPU != nil {
		u.nanoCores, u.rated = r.rates.add(path, point{s.At, s.CPU.Total})
	}
	return u, true
}

// usage reads the node and the pods of the view. The error says what could not be read; the rest is there.
func (r *cgroups) usage(ctx context.Context, v view, want extent) (*usage, error) {
	all := want&everything != 0
	u, err := r.node(all)
	err = errors.Join(err, r.pods(ctx, u, v, all))
	if want&rated != 0 {
		r.rate(ctx, u)
	}
	return u, err
}

func newUsage() *usage {
	return &usage{system: map[string]reading{}, pods: map[string]podUsage{}}
}

// node reads all but the pods.
func (r *cgroups) node(all bool) (*usage, error) {
	var errs []error
	u := newUsage()
	u.node, _ = r.read("/", all, &errs)
	for name, paths := range r.system {
		for _, path := range paths {
			if s, ok := r.read(path, all, &errs); ok {
				u.system[name] = s
				break
			}
		}
	}
	for _, path := range r.tree.Classes() {
		s, ok := r.read(path, all, &errs)
		if ok && path == r.tree.Kubepods() {
			u.system[statsapi.SystemContainerPods] = s
		}
		if ok {
			u.classes = append(u.classes, s)
		}
	}
	if all {
		u.network = r.tree.HostNetwork()
		disks, names := r.tree.Disks()
		u.devices = names
		if len(u.node.IO) == 0 {
			// Version 1 counts nothing for the root.
			u.node.IO = disks
		}
	}
	u.threads, _ = r.tree.Running()
	return u, errors.Join(errs...)
}

// pods adds the pods of the view. The error says what could not be read; the rest is there.
func (r *cgroups) pods(ctx context.Context, u *usage, v view, all bool) error {
	paths, err := r.tree.Pods()
	errs := []error{err}
	for i := range v.pods {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		pod := &v.pods[i]
		if path, ok := paths[pod.ref.UID]; ok {
			if p, ok := r.pod(path, pod, all, &errs); ok {
				u.pods[pod.ref.UID] = p
			}
		}
	}
	return errors.Join(errs...)
}

func (r *cgroups) pod(path string, pod *podView, all bool, errs *[]error) (podUsage, bool) {
	var p podUsage
	var ok bool
	if p.reading, ok = r.read(path, all, errs); !ok {
		return p, false
	}
	p.containers = map[string]reading{}
	below := r.tree.Containers(path)
	for _, c := range pod.containers {
		if at, ok := below[c.id]; ok && c.running {
			if s, ok := r.read(at, all, errs); ok {
				p.containers[c.id] = s
			}
		}
	}
	if !all {
		return p, true
	}
	if at, ok := below[pod.sandbox]; ok {
		if s, ok := r.read(at, all, errs); ok {
			p.containers[pod.sandbox] = s
		}
	}
	p.network = r.network(below, pod)
	return p, true
}

// network is what the sandbox's process sees of the network, or a container's: CRI-O runs no process in a sandbox that
// needs none.
func (r *cgroups) network(below map[string]string, pod *podView) []cgroup.Interface {
	if at, ok := below[pod.sandbox]; ok {
		if found := r.tree.Network(at); len(found) > 0 {
			return found
		}
	}
	for _, c := range pod.containers {
		if at, ok := below[c.id]; ok && c.running {
			return r.tree.Network(at)
		}
	}
	return nil
}

// rate takes a second sample of what has no rate yet.
func (r *cgroups) rate(ctx context.Context, u *usage) {
	unrated := false
	u.each(func(s *reading) { unrated = unrated || !s.rated && s.CPU != nil })
	if !unrated {
		return
	}
	timer := time.NewTimer(secondSample)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return
	}
	u.each(func(s *reading) {
		if s.rated || s.CPU == nil {
			return
		}
		if at, total, ok := r.tree.CPUTime(s.path); ok {
			s.nanoCores, s.rated = r.rates.add(s.path, point{at, total})
		}
	})
}

// each visits every reading and keeps what visit changes.
func (u *usage) each(visit func(*reading)) {
	visit(&u.node)
	for name, s := range u.system {
		visit(&s)
		u.system[name] = s
	}
	for i := range u.classes {
		visit(&u.classes[i])
	}
	for uid, p := range u.pods {
		visit(&p.reading)
		for id, s := range p.containers {
			visit(&s)
			p.containers[id] = s
		}
		u.pods[uid] = p
	}
}

// systemCgroups are where the cgroups of the node's system containers may be. The configuration's names go first; else
// the agent's is the slice of its daemons, and the runtime's that of its unit, which may start later.
func systemCgroups(tree *cgroup.Tree, kubelet, runtime, misc string) map[string][]string {
	if kubelet == "" {
		own := tree.Own()
		if before, _, ok := strings.Cut(own, "kubelot.slice"); ok {
			kubelet = before + "kubelot.slice"
		} else if strings.HasSuffix(own, ".service") {
			kubelet = own
		}
	}
	found := map[string][]string{
		statsapi.SystemContainerRuntime: {"/system.slice/crio.service", "/system.slice/containerd.service"},
	}
	for name, path := range map[string]string{
		statsapi.SystemContainerKubelet: kubelet, statsapi.SystemContainerRuntime: runtime,
		statsapi.SystemContainerMisc: misc,
	} {
		if path != "" && path != "/" {
			found[name] = []string{path}
		}
	}
	return found
}
