package volume

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// op is what a worker does to a volume.
type op string

const (
	opNone    op = ""
	opMount   op = "mount"
	opUnmount op = "unmount"
)

// pod is what is known of one pod. It belongs to the goroutine of Service.Run.
type pod struct {
	ref topic.Ref
	// update is the pod as podsync has it; Pod is nil for a directory of which no source knows.
	update topic.Pod
	// gone is true once pod.update was removed, or where there never was one.
	gone    bool
	volumes []*volume
	// binds are the calls of volume.subpath that are being worked on.
	binds int
	// The sweep removes what the volumes' own workers leave.
	sweeping, swept bool
	retry           retry
	problem         string
	// touched is true where the pod is to be published.
	touched bool
}

// volume is one volume of a pod.
type volume struct {
	spec    *corev1.Volume
	kind    plugin.Kind
	dir     string
	objects []object
	// followsPod is true where the files depend on the pod itself, followsNode where on the node.
	followsPod, followsNode bool

	phase  topic.VolumePhase
	result plugin.Result
	// problem says why the last attempt failed.
	problem string
	// dirty asks for a mount: it isn't mounted yet, or something it is made from has changed.
	dirty bool
	retry retry

	// unmounting is true once the volume's last worker was to unmount it.
	unmounting bool

	op     op
	since  time.Time
	wanted time.Time // since when; zero before its first mount has begun
	cancel context.CancelCauseFunc
	// slow and late are true once it has been reported that the worker takes long or too long.
	slow, late bool
}

// object is a ConfigMap or Secret.
type object struct {
	secret bool
	key    types.NamespacedName
}

// The pauses after failures, the kubelet's.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 2*time.Minute + 2*time.Second
)

// retry is the pause after failures.
type retry struct {
	failures  int
	notBefore time.Time
}

func (r *retry) fail(now time.Time) {
	pause := lastPause
	if r.failures < 8 {
		pause = min(firstPause<<r.failures, lastPause)
	}
	r.failures++
	r.notBefore = now.Add(pause)
}

func newPod(update topic.Pod, root layout, kinds plugin.List) *pod {
	// What an earlier run said of the pod stays on the bus until it is known what its volumes are like now.
	p := &pod{update: update, ref: refOf(update.Pod), touched: len(update.Pod.Spec.Volumes) == 0}
	for i := range update.Pod.Spec.Volumes {
		spec := &update.Pod.Spec.Volumes[i]
		kind := kinds.For(spec)
		v := &volume{
			spec: spec, kind: kind, dir: kind.VolumeDir(root.pod(p.ref.UID), spec.Name),
			phase: topic.VolumePending, dirty: true, objects: objectsOf(update.Pod.Namespace, spec),
		}
		v.followsPod, v.followsNode = follows(spec)
		p.volumes = append(p.volumes, v)
	}
	return p
}

func refOf(p *corev1.Pod) topic.Ref {
	return topic.Ref{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

func (p *pod) volume(name string) *volume {
	for _, v := range p.volumes {
		if v.spec.Name == name {
			return v
		}
	}
	return nil
}

// slow tells whether it was reported that one of the volumes takes long.
func (p *pod) slow() bool {
	return slices.ContainsFunc(p.volumes, func(v *volume) bool { return v.op != opNone && v.slow })
}

// objectsOf are the ConfigMaps and Secrets that a volume is made from.
func objectsOf(namespace string, v *corev1.Volume) []object {
	var found []object
	add := func(secret bool, name string) {
		found = append(found, object{secret, types.NamespacedName{Namespace: namespace, Name: name}})
	}
	if v.ConfigMap != nil {
		add(false, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		add(true, v.Secret.SecretName)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				add(false, s.ConfigMap.Name)
			}
			if s.Secret != nil {
				add(true, s.Secret.Name)
			}
		}
	}
	return found
}

// follows tells whether a volume's files depend on the pod's metadata and resources, and on the node's.
func follows(v *corev1.Volume) (onPod, onNode bool) {
	look := func(items []corev1.DownwardAPIVolumeFile) {
		onPod = true
		for _, item := range items {
			onNode = onNode || item.ResourceFieldRef != nil
		}
	}
	if v.DownwardAPI != nil {
		look(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				look(s.DownwardAPI.Items)
			}
		}
	}
	return onPod, onNode
}
