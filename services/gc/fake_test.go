package gc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/signal"
)

// capacity is that of the memory and of the disk.
const capacity = 2000 * mib

// Read and Disks are the sensor.
func (b *bed) Read(now time.Time) (evict.Observations, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	return evict.Observations{
		evict.MemoryAvailable: {Available: b.memory, Capacity: capacity, At: now}, evict.PIDAvailable: {
			Available: b.pids,
			Capacity:  10000, At: now,
		},
	}, nil
}

func (b *bed) Disks(now time.Time, _ signal.Filesystems) (evict.Observations, error) {
	b.mu.Lock()
	hang, available, inodes := b.hang, b.disk, b.inodes
	b.mu.Unlock()
	time.Sleep(hang)
	obs := evict.Observations{
		evict.NodeFSAvailable:  {Available: available, Capacity: capacity, At: now},
		evict.ImageFSAvailable: {Available: available, Capacity: capacity, At: now},
	}
	if inodes > 0 {
		obs[evict.NodeFSInodes] = evict.Observation{Available: inodes, Capacity: 20_000, At: now}
	}
	return obs, nil
}

// Wait is the alarm.
func (b *bed) Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// ImageFsInfo is the runtime's; the fake's filesystem isn't one that can be looked up.
type fsInfo struct {
	images
	*bed
}

func (f fsInfo) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if f.lost {
		return nil, errors.New("no filesystem")
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{
		{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: f.config.RootDir}},
	}}, nil
}

// SandboxImage is what a runtime says that doesn't pin it.
func (f fsInfo) SandboxImage(context.Context) (string, error) { return f.sandboxImage, nil }

func (b *bed) evict(_ context.Context, e topic.Eviction) (topic.EvictionReply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Now().Before(b.empty) {
		return topic.EvictionReply{}, bus.WithKind(bus.ErrNotFound, errors.New("it has no worker"))
	}
	switch e.Name {
	case "refused":
		return topic.EvictionReply{}, errors.New("no such pod")
	case "stopping":
		return topic.EvictionReply{}, bus.WithKind(bus.ErrUnavailable, errors.New("podsync is stopping"))
	case "over":
		return topic.EvictionReply{Ending: true, Ended: true}, nil
	}
	b.evicted = append(b.evicted, fmt.Sprintf("%s %s grace %d %s", time.Since(b.began).Truncate(time.Second), e.Name,
		*e.GracePeriodSeconds, e.Disruption))
	b.message = e.Message
	if b.mute > 0 {
		b.mute--
		return topic.EvictionReply{}, bus.WithKind(bus.ErrUnavailable, errors.New("the answer is lost"))
	}
	return topic.EvictionReply{}, nil
}

// summary has what was asked for, as that of stats.
func (b *bed) summary(ctx context.Context, req topic.SummaryRequest) (statsv1alpha1.Summary, error) {
	if b.stats != nil {
		return b.stats(ctx, req)
	}
	pause.For(ctx, b.think)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = req.MaxAge
	if b.deaf {
		return statsv1alpha1.Summary{}, errors.New("stats is deaf")
	}
	var s statsv1alpha1.Summary
	u := func(n int64) *uint64 { v := uint64(n); return &v }
	volumes, at := b.volumes, metav1.Now()
	if b.former != nil && (time.Since(b.countedAt) <= req.MaxAge || time.Now().Before(b.countable)) {
		volumes, at = b.former, metav1.NewTime(b.countedAt)
	}
	for _, name := range slices.Sorted(maps.Keys(b.usage)) {
		p := statsv1alpha1.PodStats{
			PodRef: statsv1alpha1.PodReference{Name: name, Namespace: "default", UID: name},
			Memory: &statsv1alpha1.MemoryStats{WorkingSetBytes: u(b.usage[name])},
		}
		if n, counted := volumes[name]; counted && !req.OnlyCPUAndMemory {
			p.VolumeStats = []statsv1alpha1.VolumeStats{{
				Name:    "data",
				FsStats: statsv1alpha1.FsStats{Time: at, UsedBytes: u(n)},
			}}
		}
		if !req.OnlyCPUAndMemory || req.Processes {
			p.ProcessStats = &statsv1alpha1.ProcessStats{ProcessCount: u(b.tasks[name])}
		}
		s.Pods = append(s.Pods, p)
	}
	return s, nil
}

func (b *bed) Record(e topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.Kind+" "+e.Name+" "+e.Reason)
}

func (b *bed) Set(state topic.HealthState, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health = strings.TrimSuffix(string(state)+": "+message, ": ")
}
