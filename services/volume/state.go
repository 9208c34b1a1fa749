package volume

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/agenda"
	"kubelot.dev/daemon/podspec"
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
	agenda.Place
	ref topic.Ref
	// update is the pod as podsync has it; Pod is nil for a directory of which no source knows.
	update topic.Pod
	// gone is true once pod.update was removed, or where there never was one.
	gone    bool
	volumes []*volume
	// binds are the containers whose calls of volume.subpath are being worked on.
	binds map[string]bool
	// cleaningUp is true while what the volumes' own workers leave is removed, cleanedUp once it is.
	cleaningUp, cleanedUp bool
	retry                 retry
	problem               string
	// touched is true where the pod must be published.
	touched bool
	// counted is what the metrics have of it.
	counted counts
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
	// persistent is the name of the persistent volume that is used or about to be.
	persistent string
	// problem says why the last attempt failed, and reason is the Event's.
	problem, reason string
	// onItsWay is true while others are still at work for the volume.
	onItsWay bool
	// dirty asks for a mount: it isn't mounted yet, or something it is made from has changed.
	dirty bool
	retry retry
	told  told

	// unmounting is true once the volume's last worker was to unmount it.
	unmounting bool

	op     op
	since  time.Time
	wanted time.Time // since when; zero before its first mount has begun
	// alive is when the worker has last told that it gets on.
	alive  time.Time
	cancel context.CancelCauseFunc
	waiting
}

// waiting is what a volume waits for that takes long.
type waiting struct {
	// calling is the call that the worker waits for, attaching what the attacher of a driver is waited for; nil for none.
	calling, attaching *topic.DriverCall
	// unattached is true for one that isn't attached to the node yet.
	unattached bool
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
	// woken is true if what may mend the failure came during the attempt.
	woken bool
}

// begin is the begin of an attempt.
func (r *retry) begin() { r.woken = false }

// fail makes the next pause; limit is the longest one, 0 for the kubelet's.
func (r *retry) fail(now time.Time, limit time.Duration) {
	r.failures++
	r.notBefore = now.Add(pause.After(r.failures, firstPause, cmp.Or(limit, lastPause)))
	if r.woken {
		r.notBefore = now
	}
}

// wake ends the pause, and spares an attempt that is under way the next one.
func (r *retry) wake() { r.notBefore, r.woken = time.Time{}, true }

// told is what the log and Events have said of a volume since it was last well, and when each may be said again.
type told map[string]retry

// mostTold is how many messages of a volume are told apart; the others count as one. The kubelet's Events combine as
// many.
const mostTold = 10

// due reports whether that is to be said now. The same is said again after pauses that grow, however often the volume
// is tried and whatever was said in between: status sends 25 Events of one pod, and then one in five minutes, so that
// others would be lost.
func (t told) due(what string, now time.Time) bool {
	if _, known := t[what]; !known && len(t) >= mostTold {
		what = ""
	}
	r := t[what]
	if now.Before(r.notBefore) {
		return false
	}
	r.fail(now, 0)
	t[what] = r
	return true
}

// newPod is a pod as podsync has it; before is what an earlier run has said of its volumes.
func newPod(update topic.Pod, root layout, kinds plugin.List, before topic.PodVolumes) *pod {
	p := &pod{update: update, ref: topic.RefOf(update.Pod)}
	p.addVolumes(root, kinds, before)
	// The state that an earlier run has published stays on the bus until the volumes' present state is known.
	p.touched = len(p.volumes) == 0
	return p
}

// addVolumes adds the volumes that a container uses and that aren't known yet: all of a new pod's, and those that an
// ephemeral container is the first to use. The others are left alone, as by the kubelet.
func (p *pod) addVolumes(root layout, kinds plugin.List, before topic.PodVolumes) []*volume {
	var added []*volume
	used := usedVolumes(p.update.Pod)
	for i := range p.update.Pod.Spec.Volumes {
		spec := &p.update.Pod.Spec.Volumes[i]
		if !used[spec.Name] || p.volume(spec.Name) != nil {
			continue
		}
		kind := kinds.For(spec)
		v := &volume{
			spec: spec, kind: kind, dir: kind.VolumeDir(root.pod(p.ref.UID), spec.Name),
			phase: topic.VolumePending, dirty: true, told: told{}, objects: objectsOf(p.update.Pod.Namespace, spec),
		}
		v.followsPod, v.followsNode = follows(spec)
		v.remember(before.Volumes[spec.Name])
		p.volumes, added = append(p.volumes, v), append(added, v)
	}
	return added
}

// remember takes over what an earlier run has found out by asking the API server.
func (v *volume) remember(before topic.Volume) {
	if before.Phase != topic.VolumeMounted || before.PersistentVolume == "" {
		return
	}
	v.persistent = before.PersistentVolume
	v.result = plugin.Result{
		HostPath: before.HostPath, Device: before.Device, PersistentVolume: before.PersistentVolume,
		ReadOnly: before.ReadOnly, Measured: before.Measured, Size: before.Size,
		SELinuxRelabel: before.SELinuxRelabel, SupplementalGroup: before.SupplementalGroup,
	}
}

// place is where the volume is on disk and which kind removes it; no directory where there is nothing to remove.
func (v *volume) place(podDir string, kinds plugin.List) (plugin.Kind, string) {
	if v.dir != "" {
		return v.kind, v.dir
	}
	path := v.result.HostPath + v.result.Device
	if kind, dir, ok := kinds.ByPath(podDir, path); ok && path != "" {
		return kind, dir
	}
	return plugin.Kind{}, ""
}

// plugin is the name of the plug-in that the volume is set up by; that of a claim's volume is known once it is.
func (v *volume) plugin() string {
	if v.result.Plugin == "" && v.spec.CSI != nil {
		return v.kind.Name + ":" + v.spec.CSI.Driver
	}
	return cmp.Or(v.result.Plugin, v.kind.Name)
}

// innerName is the name that the volume has on disk, as with the kubelet: of a claim it is that of what is behind it.
func (v *volume) innerName() string { return cmp.Or(v.result.PersistentVolume, v.spec.Name) }

// usedVolumes are the names of the volumes that a container of the pod mounts or has as a device.
func usedVolumes(p *corev1.Pod) map[string]bool {
	used := map[string]bool{}
	for c := range podspec.Containers(&p.Spec) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
	}
	return used
}

func (p *pod) volume(name string) *volume {
	for _, v := range p.volumes {
		if v.spec.Name == name {
			return v
		}
	}
	return nil
}

// slow reports whether it was reported that one of the volumes takes long.
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

// follows reports whether a volume's files depend on the pod's metadata and resources, and on the node's.
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
