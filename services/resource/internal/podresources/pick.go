package podresources

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// active reports whether the pod may have something: it isn't over. A pod of a final phase is only active while it is
// being ended, when containers may still run.
func (p *Pod) active() bool {
	switch p.Update.Lifecycle {
	case topic.Terminated:
		return false
	case topic.Terminating:
		return true
	}
	return p.Phase != corev1.PodSucceeded && p.Phase != corev1.PodFailed
}

// shown are the pods that List shows, by namespace and name: those that are over only with ended. It leaves the list as
// it is.
func shown(all []Pod, ended bool) []*Pod {
	pods := make([]*Pod, 0, len(all))
	for i := range all {
		if ended || all[i].active() {
			pods = append(pods, &all[i])
		}
	}
	slices.SortFunc(pods, func(x, y *Pod) int {
		a, b := x.Update.Pod, y.Update.Pod
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	return pods
}

// find is the pod of that name, or nil. Of several, which have different UIDs, the one that isn't being ended wins, and
// then the latest.
func find(shown []*Pod, namespace, name string) *Pod {
	var best *Pod
	for _, p := range shown {
		if p.Update.Pod.Namespace != namespace || p.Update.Pod.Name != name {
			continue
		}
		if best == nil || preferred(&p.Update, &best.Update) {
			best = p
		}
	}
	return best
}

func preferred(a, b *topic.Pod) bool {
	if ends := a.Lifecycle != topic.Syncing; ends != (b.Lifecycle != topic.Syncing) {
		return !ends
	}
	return a.FirstSeen.After(b.FirstSeen)
}

// containers are the names of the pod's containers that the API shows: sidecars and app containers.
func (p *Pod) containers() []string {
	spec := &p.Update.Pod.Spec
	names := make([]string, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; podspec.IsSidecar(c) {
			names = append(names, c.Name)
		}
	}
	for i := range spec.Containers {
		names = append(names, spec.Containers[i].Name)
	}
	return names
}
