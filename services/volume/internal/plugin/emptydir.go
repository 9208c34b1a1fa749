package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/payload"
)

// emptyDir is a directory that lives as long as its pod: on disk, in memory or in huge pages.
// Nothing is ever changed in one that exists, for the pod may have set modes and owners of its own.
type emptyDir struct{ kernel string }

func (e emptyDir) Mount(ctx context.Context, r Request) (Result, error) {
	source := r.Volume.EmptyDir
	if source == nil {
		source = &corev1.EmptyDirVolumeSource{}
	}
	gid := payload.FSGroup(r.Pod)
	if _, err := mounts.EnsureDir(ctx, r.Dir, shared(gid), gid); err != nil {
		return Result{}, err
	}
	var own owner
	var err error
	switch medium := source.Medium; {
	case medium == corev1.StorageMediumDefault:
	case medium == corev1.StorageMediumMemory:
		if own, err = ownerOf(ctx, r, mounts.MapsTmpfs(e.kernel)); err == nil {
			err = mounts.EnsureTmpfs(r.Dir, mounts.Tmpfs{
				SizeBytes: memorySize(r.Pod, source.SizeLimit, r.Allocatable), Mode: shared(gid) | fs.ModeSticky,
				UID: own.uid, GID: own.gid,
			})
		}
	case strings.HasPrefix(string(medium), string(corev1.StorageMediumHugePages)):
		var size int64
		if size, err = pageSize(r.Pod, medium); err == nil {
			own, err = ownerOf(ctx, r, mounts.MapsHugetlbfs(e.kernel))
		}
		if err == nil {
			err = mounts.EnsureHugetlbfs(r.Dir, size, shared(gid), own.uid, own.gid)
		}
	default:
		err = fmt.Errorf("unknown storage medium %q", medium)
	}
	if err != nil {
		return Result{}, err // what is below is on the disk, and not the volume
	}
	return Result{HostPath: r.Dir, SELinuxRelabel: true, HostIDs: own.onHost()}, nil
}

func (emptyDir) Unmount(ctx context.Context, dir string) error { return mounts.Release(ctx, dir) }

// shared is the mode of a directory for any user, which hands its group down where there is an fsGroup.
func shared(gid *int64) fs.FileMode {
	if gid != nil {
		return 0o777 | fs.ModeSetgid
	}
	return 0o777
}

// memorySize is the smallest of what the node has for pods, what the pod may use, and the volume's own limit; 0
// where none of them is known.
func memorySize(pod *corev1.Pod, limit *resource.Quantity, allocatable corev1.ResourceList) int64 {
	size := int64(0)
	if limit == nil {
		limit = &resource.Quantity{}
	}
	for _, n := range []int64{allocatable.Memory().Value(), podMemoryLimit(pod), limit.Value()} {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	return size
}

// podMemoryLimit is the limit of the pod's cgroup: of the pod itself, or the sum over its containers if each has
// one; 0 where there is none.
func podMemoryLimit(pod *corev1.Pod) int64 {
	complete := true
	limits := podresource.PodLimits(pod, podresource.PodResourcesOptions{
		ContainerFn: func(list corev1.ResourceList, _ podresource.ContainerType) {
			complete = complete && !list.Memory().IsZero()
		},
	})
	if pod.Spec.Resources != nil && !pod.Spec.Resources.Limits.Memory().IsZero() {
		complete = true
	}
	if !complete {
		return 0
	}
	return limits.Memory().Value()
}

// pageSize is the size of the huge pages in bytes: the medium's, which a container must request, or the
// only one that the containers request.
func pageSize(pod *corev1.Pod, medium corev1.StorageMedium) (int64, error) {
	requested := requestedPages(pod)
	if medium == corev1.StorageMediumHugePages {
		switch len(requested) {
		case 0:
			return 0, errors.New("medium HugePages: no container requests huge pages")
		case 1:
			for size := range requested {
				return size, nil
			}
		}
		return 0, errors.New("medium HugePages: containers request huge pages of several sizes; name one, such as " +
			"HugePages-2Mi")
	}
	quantity, err := resource.ParseQuantity(strings.TrimPrefix(string(medium),
		string(corev1.StorageMediumHugePagesPrefix)))
	if err != nil {
		return 0, fmt.Errorf("medium %s: %w", medium, err)
	}
	if !requested[quantity.Value()] {
		return 0, fmt.Errorf("medium %s: no container requests huge pages of this size", medium)
	}
	return quantity.Value(), nil
}

// requestedPages are the sizes of the huge pages that the pod or one of its containers requests.
func requestedPages(pod *corev1.Pod) map[int64]bool {
	sizes := map[int64]bool{}
	add := func(list corev1.ResourceList) {
		for name := range list {
			if text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok {
				if q, err := resource.ParseQuantity(text); err == nil {
					sizes[q.Value()] = true
				}
			}
		}
	}
	if pod.Spec.Resources != nil {
		add(pod.Spec.Resources.Requests)
	}
	for c := range podspec.InitAndMain(&pod.Spec) {
		add(c.Resources.Requests)
	}
	return sizes
}
