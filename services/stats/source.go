package stats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/disk"
	"kubelot.dev/services/stats/internal/ttlcache"
)

const (
	// patience is how long an answer waits for one source; what comes later serves the next answer.
	patience = 5 * time.Second
	// walkTimeout bounds the counting of one volume or of a pod's logs, and the wait for its turn.
	walkTimeout = 2 * time.Minute
	// askTimeout is how long the volume daemon may take to say how full a volume is; it gives its driver 30 s.
	askTimeout = 35 * time.Second
	// leastRest is the least bound of the rest between walks, which is volumeStatsAggPeriod's otherwise.
	leastRest = time.Minute
	// walkers is how many directories are counted at a time.
	walkers = 2
)

// runtimeStats is what the runtime knows and the cgroups don't: the layers on its disks.
type runtimeStats interface {
	ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// layer is a writable layer, or what all images take up.
type layer struct {
	at     time.Time
	usage  disk.Usage
	inodes bool
	fs     *disk.Filesystem
	// err is why the usage is no more than a lower bound.
	err error
}

// images are the runtime's filesystems.
type images struct{ image, container *layer }

// volumeUsage is one volume's reading, or that of a pod's files outside its volumes.
type volumeUsage struct {
	at    time.Time
	usage disk.Usage
	fs    disk.Filesystem
	// err is why the usage is no more than a lower bound.
	err error
}

// podFiles are a pod's files outside its volumes.
type podFiles struct {
	at   time.Time
	logs map[string]disk.Usage
	// other are the files next to the containers' log directories, and etc-hosts.
	other disk.Usage
	// err is why the usage is no more than a lower bound.
	err error
}

// sources are the readings that are kept for a moment, each with its own deadline.
type sources struct {
	runtime        runtimeStats
	runtimeTimeout time.Duration
	rootDir        string
	logsDir        string
	// usage asks the driver of a volume.
	usage func(context.Context, topic.VolumeUsageRequest) (topic.VolumeUsageReply, error)
	// mounts is the file that lists what is mounted.
	mounts string
	group  *ttlcache.Group
	report *report

	rootFS ttlcache.Cell[disk.Filesystem]
	images ttlcache.Cell[images]
	layers ttlcache.Cell[map[string]layer]
	walks  *turns
	// walkTime bounds a walk; what it has counted by then is its result.
	walkTime time.Duration
	// rest bounds how long a slow walk isn't begun again; see ttlcache.Cell.
	rest time.Duration

	mu       sync.Mutex
	volumes  map[part]*ttlcache.Cell[volumeUsage]
	files    map[part]*ttlcache.Cell[podFiles]
	counted  map[part]*ttlcache.Cell[layer]
	problems map[part]error // why something can't be read
}

// part is something of a pod's that is measured: a volume or the logs.
type part struct{ uid, what string }

func volumePart(uid, name string) part { return part{uid, "volume " + name} }

func layerPart(uid, container string) part { return part{uid, "writable layer of " + container} }

func filesPart(uid string) part { return part{uid, "logs"} }

// cellOf is the part's cell, made where there is none.
func cellOf[T any](s *sources, cells map[part]*ttlcache.Cell[T], p part) *ttlcache.Cell[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cells[p] == nil {
		cells[p] = &ttlcache.Cell[T]{Rest: s.rest}
	}
	return cells[p]
}

// value is the reading's value and whether there is one.
func value[T any](s *sources, source string, r ttlcache.Reading[T]) (T, bool) {
	s.report.source(source, r.Err)
	return r.Value, !r.At.IsZero()
}

func (s *sources) rootfs(ctx context.Context, maxAge time.Duration) (disk.Filesystem, bool) {
	r := s.rootFS.Get(ctx, s.group, maxAge, patience, func(context.Context) (disk.Filesystem, error) {
		return disk.Stat(s.rootDir)
	})
	return value(s, "node filesystem", r)
}

func (s *sources) imageFS(ctx context.Context, maxAge time.Duration) (images, bool) {
	r := s.images.Get(ctx, s.group, maxAge, s.runtimeTimeout, func(ctx context.Context) (images, error) {
		info, err := s.runtime.ImageFsInfo(ctx)
		if err != nil {
			return images{}, err
		}
		var found images
		if list := info.GetImageFilesystems(); len(list) > 0 {
			found.image = filesystemLayer(list[0], map[string]*disk.Filesystem{})
		}
		if list := info.GetContainerFilesystems(); len(list) > 0 {
			found.container = filesystemLayer(list[0], map[string]*disk.Filesystem{})
		}
		if found.image == nil {
			return images{}, fmt.Errorf("the runtime names no image filesystem")
		}
		if found.container == nil {
			found.container = found.image
		}
		return found, nil
	})
	return value(s, "image filesystem", r)
}

// writable are the writable layers by container ID: of all, or only of the sandboxes given.
func (s *sources) writable(ctx context.Context, maxAge time.Duration, sandboxes []string) (map[string]layer, bool) {
	if last := s.layers.Peek(); len(sandboxes) > 0 && (last.At.IsZero() || time.Since(last.At) > maxAge) {
		var all []*runtimeapi.ContainerStats
		for _, id := range sandboxes {
			list, err := s.runtime.ListContainerStats(ctx, &runtimeapi.ContainerStatsFilter{PodSandboxId: id})
			s.report.source("container filesystems", err)
			if err != nil {
				return nil, false
			}
			all = append(all, list...)
		}
		return layersOf(all), true
	}
	r := s.layers.Get(ctx, s.group, maxAge, s.runtimeTimeout, func(ctx context.Context) (map[string]layer, error) {
		list, err := s.runtime.ListContainerStats(ctx, nil)
		return layersOf(list), err
	})
	return value(s, "container filesystems", r)
}

func layersOf(list []*runtimeapi.ContainerStats) map[string]layer {
	layers, seen := map[string]layer{}, map[string]*disk.Filesystem{}
	for _, c := range list {
		if l := filesystemLayer(c.GetWritableLayer(), seen); l != nil && c.GetAttributes().GetId() != "" {
			layers[c.GetAttributes().GetId()] = *l
		}
	}
	return layers
}

// filesystemLayer is what the runtime says of a filesystem, with the filesystem's own figures where it is on this
// machine.
func filesystemLayer(u *runtimeapi.FilesystemUsage, seen map[string]*disk.Filesystem) *layer {
	if u == nil || u.GetUsedBytes() == nil {
		return nil
	}
	l := &layer{
		at: time.Unix(0, u.GetTimestamp()), inodes: u.GetInodesUsed() != nil,
		usage: disk.Usage{Bytes: u.GetUsedBytes().GetValue(), Inodes: u.GetInodesUsed().GetValue()},
	}
	mount := u.GetFsId().GetMountpoint()
	if _, known := seen[mount]; !known && mount != "" {
		seen[mount] = nil
		if fs, err := disk.Stat(mount); err == nil {
			seen[mount] = &fs
		}
	}
	l.fs = seen[mount]
	return l
}

// volume measures one volume. If a part of it can't be read, the rest counts as its usage, at least.
func (s *sources) volume(ctx context.Context, uid string, v volumeView, maxAge time.Duration) (volumeUsage, bool) {
	p := volumePart(uid, v.name)
	r := cellOf(s, s.volumes, p).Get(ctx, s.group, maxAge, 2*walkTimeout, func(ctx context.Context) (volumeUsage, error) {
		u := volumeUsage{at: time.Now()}
		if v.asked != nil {
			reply, err := s.ask(ctx, *v.asked)
			u.told(reply)
			return u, err
		}
		defer func() { s.report.measured(v.walk, u.at) }()
		var err error
		if u.fs, err = disk.Stat(v.path); err != nil {
			return u, err
		}
		if !v.walk {
			u.usage = disk.Usage{Bytes: u.fs.Used, Inodes: u.fs.Inodes - u.fs.InodesFree}
			return u, nil
		}
		err = s.walk(ctx, func(ctx context.Context) { u.usage, u.err = disk.Walk(ctx, v.path) })
		return u, err
	})
	s.note(p, errors.Join(r.Err, r.Value.err))
	return r.Value, !r.At.IsZero()
}

// ask asks how full a volume is. Nobody answers a question whose daemon was killed, so it is asked again.
func (s *sources) ask(ctx context.Context, r topic.VolumeUsageRequest) (topic.VolumeUsageReply, error) {
	for {
		asking, cancel := context.WithTimeout(ctx, askTimeout)
		reply, err := s.usage(asking, r)
		unanswered := err != nil && asking.Err() != nil
		cancel()
		if !unanswered || ctx.Err() != nil {
			return reply, err
		}
	}
}

// told takes what a driver says, as the kubelet does: of a device it may be the capacity alone.
func (u *volumeUsage) told(r topic.VolumeUsageReply) {
	u.fs = disk.Filesystem{
		Capacity: uint64(r.Bytes.Total), Available: uint64(r.Bytes.Available), Used: uint64(r.Bytes.Used),
		Inodes: uint64(r.Inodes.Total), InodesFree: uint64(r.Inodes.Available),
	}
	u.usage = disk.Usage{Bytes: uint64(r.Bytes.Used), Inodes: uint64(r.Inodes.Used)}
}

// podFiles measures the pod's logs and the files that are made for it.
func (s *sources) podFiles(ctx context.Context, pod *podView, maxAge time.Duration) (podFiles, bool) {
	p := filesPart(pod.ref.UID)
	r := cellOf(s, s.files, p).Get(ctx, s.group, maxAge, 2*walkTimeout, func(ctx context.Context) (podFiles, error) {
		f := podFiles{at: time.Now(), logs: map[string]disk.Usage{}}
		err := s.walk(ctx, func(ctx context.Context) { f.err = s.measureFiles(ctx, pod, &f) })
		return f, err
	})
	s.note(p, errors.Join(r.Err, r.Value.err))
	return r.Value, !r.At.IsZero()
}

func (s *sources) measureFiles(ctx context.Context, pod *podView, f *podFiles) error {
	dir := filepath.Join(s.logsDir, labels.LogDir(pod.ref))
	other, err := disk.Files(ctx, dir)
	if hosts, err := disk.Walk(ctx, filepath.Join(s.rootDir, "pods", pod.ref.UID, "etc-hosts")); err == nil {
		other = other.Add(hosts)
	}
	f.other = other
	for _, c := range pod.containers {
		if _, done := f.logs[c.name]; !done {
			u, logsErr := disk.Files(ctx, filepath.Join(dir, c.name))
			f.logs[c.name], err = u, errors.Join(err, logsErr)
		}
	}
	return err
}

// note keeps how the last reading of something of a pod's went.
func (s *sources) note(p part, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.problems, p)
	if err != nil && (s.volumes[p] != nil || s.files[p] != nil || s.counted[p] != nil) {
		s.problems[p] = err
	}
}

// podProblems are what can't be read of all pods: the first few, and how many more there are.
func (s *sources) podProblems() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for p, err := range s.problems {
		list = append(list, fmt.Sprintf("%s of pod %s: %v", p.what, p.uid, err))
	}
	slices.Sort(list)
	if more := len(list) - 3; more > 0 {
		list = append(list[:3], fmt.Sprintf("and %d more", more))
	}
	if len(list) == 0 {
		return nil
	}
	return errors.New(strings.Join(list, "; "))
}

// walk runs work when it is its turn. Its thread has the lowest priority and ends with it: pods go first, except before
// an eviction. The error says that its turn did not come.
func (s *sources) walk(ctx context.Context, work func(context.Context)) error {
	end, urgent, err := s.walks.take(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.walkTime)
	defer cancel()
	// A call that hangs in the kernel doesn't end with ctx; it must not keep the others' turn.
	release := sync.OnceFunc(end)
	defer release()
	defer context.AfterFunc(ctx, release)()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if !urgent {
			// It is a courtesy; without the right to it the work is done nevertheless.
			_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
		}
		work(ctx)
	}()
	<-done
	return nil
}

// hurry has no reading rest: what is asked for next is read, and goes first.
func (s *sources) hurry() {
	s.walks.press()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.volumes {
		c.Hurry()
	}
	for _, c := range s.files {
		c.Hurry()
	}
	for _, c := range s.counted {
		c.Hurry()
	}
}

// forget drops what is known of a pod that is gone.
func (s *sources) forget(uid string) { s.drop(func(p part) bool { return p.uid == uid }) }

// keep drops what is known of pods that aren't among these: they have ended, and nothing of them is measured any more.
func (s *sources) keep(pods []podView) {
	there := make(map[string]bool, len(pods))
	for i := range pods {
		there[pods[i].ref.UID] = true
	}
	s.drop(func(p part) bool { return !there[p.uid] })
}

func (s *sources) drop(gone func(part) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.volumes, func(p part, _ *ttlcache.Cell[volumeUsage]) bool { return gone(p) })
	maps.DeleteFunc(s.files, func(p part, _ *ttlcache.Cell[podFiles]) bool { return gone(p) })
	maps.DeleteFunc(s.counted, func(p part, _ *ttlcache.Cell[layer]) bool { return gone(p) })
	maps.DeleteFunc(s.problems, func(p part, _ error) bool { return gone(p) })
}
