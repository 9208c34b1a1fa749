// Package plugin has the kinds of volumes: one Plugin for each, and the list of all of them.
//
// # Reads
//
// The ConfigMaps, Secrets and tokens that the Objects it is given answer with; host paths.
//
// # Writes
//
// <pod>/volumes/<plugin>/<volume>, and host paths of a type that says "create".
//
// # Owns
//
// <pod>/volumes.
//
// # Guarantees
//
//   - Mount and Unmount may be repeated at any time, also after they were interrupted: mounting a mounted volume
//     brings its content up to date, and touches nothing where it is.
//   - No plugin keeps state in memory: what is on disk decides.
package plugin

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// Plugin sets up and tears down one kind of volume. Its methods are called from many goroutines, but never
// by two at a time for one volume.
type Plugin interface {
	// Mount makes the volume usable, or brings it up to date. A result together with an error is a volume
	// that can be used as it is, and is out of date.
	Mount(ctx context.Context, r Request) (Result, error)
	// Unmount removes the volume's directory and all that was made for it. For kinds without a directory
	// it isn't called.
	Unmount(ctx context.Context, dir string) error
}

// Request is one volume of one pod.
type Request struct {
	Pod    *corev1.Pod
	Volume *corev1.Volume
	// Dir is where the volume goes; empty for kinds without a directory.
	Dir string
	// Allocatable are the node's resources for pods, NodeLabels its labels; nil while they aren't known.
	Allocatable corev1.ResourceList
	NodeLabels  map[string]string
	// Known is what an earlier mount of the volume gave, perhaps one of an earlier run; zero where there was none.
	Known Result
	// Ending is true where the pod is being terminated: what isn't mounted by now isn't any more.
	Ending bool
	Calls  Calls
}

// Calls are what a plugin may ask of the daemon, and tell it, while it mounts. They come back soon.
type Calls interface {
	// Take notes that the pod uses the persistent volume, and fails where another pod that uses it, or this one,
	// must be the only one.
	Take(persistentVolume string, alone bool) error
	// Warn records an Event of the pod, Tell one of any object.
	Warn(reason, message string)
	Tell(e topic.Event)
	// Alive says that work which takes long goes on: the time that a mount may take counts from here again.
	Alive()
}

// Result is a volume that is usable; the zero value is none.
type Result struct {
	// HostPath is where the volume is; Image is the reference of one that the runtime mounts instead, Device the
	// link to the device of one that has no filesystem.
	HostPath string
	Image    string
	Device   string
	// PersistentVolume is the name of the one behind a claim, and Plugin the name of its kind.
	PersistentVolume, Plugin string
	// Migrated is true for a volume of a kind that has become a CSI driver's.
	Migrated bool
	// ReadOnly is true where the source itself can't be written to.
	ReadOnly       bool
	SELinuxRelabel bool
	// HostIDs is true where the files belong to the pod's own IDs on the host.
	HostIDs bool
	// Measured is true where the volume's driver says how full it is.
	Measured bool
	// SupplementalGroup is a group that containers need to use the volume.
	SupplementalGroup *int64
	// Size is the capacity of the volume behind a claim, as this node has followed it; empty if it isn't known.
	Size string
	// RefreshAt is when the volume must be mounted again; zero means when one of its sources changes.
	RefreshAt time.Time
	// LookAt is when to look whether the claim was made larger; zero means never. RefreshAt isn't later.
	LookAt time.Time
	// Warning says what is out of date in a volume that is usable nevertheless.
	Warning string
}

// Kind is one kind of volume in the list.
type Kind struct {
	// Name is the kubelet's name of the plugin, as metrics have it.
	Name string
	// Dir is the kind's directory below <pod>/volumes, the kubelet's; empty for kinds that have none.
	Dir string
	// Block is true for a kind whose Dir is below <pod>/volumeDevices.
	Block bool
	// LastPause is the longest pause after failures; zero means the daemon's own.
	LastPause time.Duration
	// Claims reports whether a volume of a pod is of this kind; nil where none is, but the persistent volume behind it.
	Claims func(*corev1.Volume) bool
	Plugin Plugin
}

// List are the kinds in the order in which they are asked.
type List []Kind

// All are the kinds of volumes that need no persistent volume.
func All(o Objects) List {
	files := func(collect collector, memory bool) Plugin { return fileVolume{collect, memory, o.Kernel} }
	return List{
		{Name: "kubernetes.io/empty-dir", Dir: "kubernetes.io~empty-dir", Claims: func(v *corev1.Volume) bool {
			return v.EmptyDir != nil || v.VolumeSource == corev1.VolumeSource{}
		}, Plugin: emptyDir{o.Kernel}},
		{Name: "kubernetes.io/configmap", Dir: "kubernetes.io~configmap", Claims: func(v *corev1.Volume) bool {
			return v.ConfigMap != nil
		}, Plugin: files(o.configMap, false)},
		{Name: "kubernetes.io/secret", Dir: "kubernetes.io~secret", Claims: func(v *corev1.Volume) bool {
			return v.Secret != nil
		}, Plugin: files(o.secret, true)},
		{Name: "kubernetes.io/downward-api", Dir: "kubernetes.io~downward-api", Claims: func(v *corev1.Volume) bool {
			return v.DownwardAPI != nil
		}, Plugin: files(o.downwardAPI, false)},
		{Name: "kubernetes.io/projected", Dir: "kubernetes.io~projected", Claims: func(v *corev1.Volume) bool {
			return v.Projected != nil
		}, Plugin: files(o.projected, true)},
		{Name: hostPathName, Claims: func(v *corev1.Volume) bool { return v.HostPath != nil }, Plugin: hostPath{}},
		{Name: "kubernetes.io/image", Claims: func(v *corev1.Volume) bool { return v.Image != nil }, Plugin: image{}},
	}
}

// InPlace is what is known of a driver's volume before anybody is asked about it.
type InPlace struct {
	// OfDriver reports whether it is a driver's at all, and There whether the pod has it.
	OfDriver, There bool
	// Due reports whether the driver wants it published again. LookAgain is when to ask next; zero means never.
	Due       bool
	LookAgain time.Time
	// Grows reports whether it can be made larger while the pod has it.
	Grows bool
}

// For is the kind of a volume; one that nobody claims can't be mounted.
func (l List) For(v *corev1.Volume) Kind {
	for _, k := range l {
		if k.Claims != nil && k.Claims(v) {
			return k
		}
	}
	return Kind{Name: "unsupported", Plugin: unsupported{}}
}

// ByDir is the kind whose volumes are in the directory of that name below <pod>/volumes, or below <pod>/volumeDevices
// for block devices.
func (l List) ByDir(name string, block bool) (Kind, bool) {
	for _, k := range l {
		if k.Dir != "" && k.Dir == name && k.Block == block {
			return k, true
		}
	}
	return Kind{}, false
}

// ByPath is the kind of the volume of the pod with that directory, and the volume's directory, in which path is.
func (l List) ByPath(podDir, path string) (kind Kind, dir string, ok bool) {
	rel, err := filepath.Rel(podDir, path)
	if err != nil {
		return Kind{}, "", false
	}
	parts := strings.Split(rel, "/")
	if len(parts) < 3 || (parts[0] != VolumesDir && parts[0] != DevicesDir) {
		return Kind{}, "", false
	}
	kind, ok = l.ByDir(parts[1], parts[0] == DevicesDir)
	return kind, filepath.Join(podDir, parts[0], parts[1], parts[2]), ok
}

// The directories of a pod's volumes, and of those that are block devices.
const (
	VolumesDir = "volumes"
	DevicesDir = "volumeDevices"
)

// VolumeDir is where a volume of the kind is for the pod with that directory; empty for kinds without one.
func (k Kind) VolumeDir(podDir, volume string) string {
	switch {
	case k.Dir == "":
		return ""
	case k.Block:
		return filepath.Join(podDir, DevicesDir, k.Dir, volume)
	}
	return filepath.Join(podDir, VolumesDir, k.Dir, volume)
}

// PodOf is the UID of the pod in whose directory a volume or the link to a device is.
func PodOf(path string) string { return filepath.Base(filepath.Join(path, "../../..")) }

// IsBlock reports whether pods get the volume as a device.
func IsBlock(pv *corev1.PersistentVolume) bool {
	return pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
}
