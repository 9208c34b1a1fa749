// Package plugin has the kinds of volumes: one Plugin for each, and the list of them all.
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
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Plugin sets up and tears down one kind of volume. Its methods are called from many goroutines, but for
// one volume by one at a time.
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
	// Allocatable are the node's resources for pods; nil while they aren't known.
	Allocatable corev1.ResourceList
}

// Result is a volume that is usable; the zero value is none.
type Result struct {
	// HostPath is where the volume is; Image is the reference of one that the runtime mounts instead.
	HostPath string
	Image    string
	// ReadOnly is true where the source itself can't be written to.
	ReadOnly       bool
	SELinuxRelabel bool
	// RefreshAt is when the volume is to be mounted again; zero means when one of its sources changes.
	RefreshAt time.Time
	// Warning says what is out of date in a volume that is usable nevertheless.
	Warning string
}

// Kind is one kind of volume in the list.
type Kind struct {
	// Name is the kubelet's name of the plugin, as metrics have it.
	Name string
	// Dir is the kind's directory below <pod>/volumes, the kubelet's; empty for kinds that have none.
	Dir string
	// Claims tells whether a volume is of this kind.
	Claims func(*corev1.Volume) bool
	Plugin Plugin
}

// List are the kinds in the order in which they are asked.
type List []Kind

// All are the kinds of volumes that kubelot knows; CSI's is to be added here.
func All(o Objects) List {
	files := func(collect collector, memory bool) Plugin { return fileVolume{collect: collect, memory: memory} }
	return List{
		{"kubernetes.io/empty-dir", "kubernetes.io~empty-dir", func(v *corev1.Volume) bool { return v.EmptyDir != nil || v.VolumeSource == corev1.VolumeSource{} }, emptyDir{}},
		{"kubernetes.io/configmap", "kubernetes.io~configmap", func(v *corev1.Volume) bool { return v.ConfigMap != nil }, files(o.configMap, false)},
		{"kubernetes.io/secret", "kubernetes.io~secret", func(v *corev1.Volume) bool { return v.Secret != nil }, files(o.secret, true)},
		{"kubernetes.io/downward-api", "kubernetes.io~downward-api", func(v *corev1.Volume) bool { return v.DownwardAPI != nil }, files(o.downwardAPI, false)},
		{"kubernetes.io/projected", "kubernetes.io~projected", func(v *corev1.Volume) bool { return v.Projected != nil }, files(o.projected, true)},
		{"kubernetes.io/host-path", "", func(v *corev1.Volume) bool { return v.HostPath != nil }, hostPath{}},
		{"kubernetes.io/image", "", func(v *corev1.Volume) bool { return v.Image != nil }, image{}},
	}
}

// For is the kind of a volume; one that nobody claims can't be mounted.
func (l List) For(v *corev1.Volume) Kind {
	for _, k := range l {
		if k.Claims(v) {
			return k
		}
	}
	return Kind{Name: "unsupported", Plugin: unsupported{}}
}

// ByDir is the kind whose volumes are in the directory of that name.
func (l List) ByDir(name string) (Kind, bool) {
	for _, k := range l {
		if k.Dir != "" && k.Dir == name {
			return k, true
		}
	}
	return Kind{}, false
}

// VolumeDir is where a volume of the kind is for the pod with that directory; empty for kinds without one.
func (k Kind) VolumeDir(podDir, volume string) string {
	if k.Dir == "" {
		return ""
	}
	return filepath.Join(podDir, "volumes", k.Dir, volume)
}
