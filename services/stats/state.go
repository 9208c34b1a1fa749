package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// state is what the bus says. It belongs to the goroutine of Run; readings get a view.
type state struct {
	pods    map[string]topic.Pod
	seen    map[string]topic.PodObservation
	volumes map[string]topic.PodVolumes
	machine topic.Machine
}

func newState() *state {
	return &state{
		pods: map[string]topic.Pod{}, seen: map[string]topic.PodObservation{},
		volumes: map[string]topic.PodVolumes{},
	}
}

// view is the pods as a reading takes them; nothing in it changes any more.
type view struct {
	node    string
	machine topic.Machine
	pods    []podView
}

// podView is a pod that has a sandbox.
type podView struct {
	ref        topic.Ref
	created    time.Time
	sandbox    string
	containers []containerView
	volumes    []volumeView
}

// containerView is a container that runs, or one that has ended and is still there.
type containerView struct {
	id, name, image string
	created         time.Time
	running         bool
}

// volumeView is a mounted volume of a kind that is measured.
type volumeView struct {
	name, path string
	// walk is true if the volume's files are counted, since it may share its filesystem with others.
	walk bool
	// ephemeral volumes count as the pod's local storage.
	ephemeral bool
	claim     string
	// asked is the question to the volume's driver, which says how full it is; nil where the filesystem is asked.
	asked *topic.VolumeUsageRequest
}

// view makes a view of the pods; all where uids is empty. A pod counts while it has a ready sandbox.
func (s *state) view(nodeName string, uids []string) view {
	v := view{node: nodeName, machine: s.machine}
	for uid, seen := range s.seen {
		if len(uids) > 0 && !slices.Contains(uids, uid) {
			continue
		}
		ready := slices.IndexFunc(seen.Sandboxes, func(b topic.Sandbox) bool { return b.Ready })
		if ready < 0 {
			continue
		}
		box := seen.Sandboxes[ready]
		p := podView{ref: seen.Ref, sandbox: box.ID, created: box.CreatedAt}
		for _, c := range seen.Containers {
			p.containers = append(p.containers, containerView{
				id: c.ID, name: c.Name, image: c.Image, created: c.CreatedAt, running: c.State == topic.ContainerRunning,
			})
		}
		if pod := s.pods[uid].Pod; pod != nil {
			p.volumes = measured(pod, s.volumes[uid])
		}
		v.pods = append(v.pods, p)
	}
	slices.SortFunc(v.pods, func(a, b podView) int {
		return cmp.Or(cmp.Compare(a.ref.Namespace, b.ref.Namespace), cmp.Compare(a.ref.Name+a.ref.UID, b.ref.Name+b.ref.UID))
	})
	return v
}

// measured are the pod's volumes that have figures of their own. A hostPath has none, as in the kubelet, nor has one
// that is behind a claim: it isn't below the pod's directory.
func measured(pod *corev1.Pod, state topic.PodVolumes) []volumeView {
	var list []volumeView
	for i := range pod.Spec.Volumes {
		spec := &pod.Spec.Volumes[i]
		v := state.Volumes[spec.Name]
		if !hasFigures(v, pod) {
			continue
		}
		view := volumeView{name: spec.Name, path: v.HostPath}
		if v.Measured {
			view.asked = &topic.VolumeUsageRequest{Ref: topic.RefOf(pod), Volume: spec.Name}
		}
		switch {
		case spec.EmptyDir != nil:
			view.walk, view.ephemeral = true, spec.EmptyDir.Medium == corev1.StorageMediumDefault
		case spec.ConfigMap != nil:
			view.walk, view.ephemeral = true, true
		case spec.Secret != nil, spec.DownwardAPI != nil, spec.Projected != nil:
			view.walk = true
		case spec.PersistentVolumeClaim != nil:
			view.claim = spec.PersistentVolumeClaim.ClaimName
		case spec.Ephemeral != nil:
			view.claim = pod.Name + "-" + spec.Name
		case v.Measured, spec.CSI != nil, spec.NFS != nil, spec.ISCSI != nil, spec.FC != nil:
		default:
			continue
		}
		list = append(list, view)
	}
	return list
}

// hasFigures reports whether the pod has the volume, in a directory or as a device of its own that can be measured.
func hasFigures(v topic.Volume, pod *corev1.Pod) bool {
	if v.Phase != topic.VolumeMounted || v.HostPath == "" && !v.Measured {
		return false
	}
	return v.PersistentVolume == "" || strings.Contains(v.HostPath+v.Device, "/pods/"+string(pod.UID)+"/")
}
