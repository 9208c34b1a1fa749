package gc

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/daemon/config"
	"kubelot.dev/services/gc/internal/container"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
	"kubelot.dev/services/gc/internal/logs"
)

const (
	// readEvery is how often the signals are read, which takes some 70 µs.
	readEvery = 500 * time.Millisecond
	// hangs is how old the signals of the filesystems may be.
	hangs = 5 * time.Second
	// The kubelet's periods.
	cleanUpEvery, imagesEvery, limitsEvery = time.Minute, 5 * time.Minute, 10 * time.Second
	// placeEvery is how often it is looked up where the runtime's filesystems are, retryPlace after a failure.
	placeEvery, retryPlace = 5 * time.Minute, 2 * time.Second
	// soonest is how soon after its end a job may begin again when something asks for it.
	soonest = 10 * time.Second
	// inventoryTimeout bounds the reading of what runs and what should, callTimeout a call of another daemon.
	inventoryTimeout, callTimeout = 30 * time.Second, 10 * time.Second
	// goneTimeout is how long an evicted pod is waited for after its grace period, restPeriod how long nothing is tried
	// after a pass that evicted nobody.
	goneTimeout, restPeriod = 30 * time.Second, 10 * time.Second
	againAfter              = 2 * time.Second // an eviction is asked for again whose answer is missing
	// reclaimTimeout bounds what goes before pods on disk pressure, lastTimeout the last call for figures where none
	// have come (see evict.Patience).
	reclaimTimeout, lastTimeout = time.Minute, time.Second
	// freedTimeout is how long space is waited for that the runtime frees, where nobody knows how much it is. Where it is
	// known to be enough, it is waited for as long as all that goes before pods.
	freedTimeout = 20 * time.Second
)

// settings are what the configuration says to gc.
type settings struct {
	thresholds  []evict.Threshold
	transition  time.Duration
	maxGrace    int32
	images      image.Policy
	containers  container.Policy
	logs        logs.Policy
	logSize     string // as it is configured
	logWorkers  int
	logsEvery   time.Duration
	localLimits bool
}

func newSettings(c *config.Config) (settings, error) {
	k := &c.Kubelet
	thresholds, err := evict.Thresholds(evict.Settings{
		Hard: k.EvictionHard, Soft: k.EvictionSoft, SoftGrace: k.EvictionSoftGracePeriod, Reclaim: k.EvictionMinimumReclaim,
		EnforcePods: slices.ContainsFunc(k.EnforceNodeAllocatable, func(item string) bool {
			return strings.EqualFold(item, "pods")
		}),
	})
	if err != nil {
		return settings{}, err
	}
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err != nil {
		return settings{}, err
	}
	return settings{
		thresholds: thresholds, transition: k.EvictionPressureTransitionPeriod.Duration,
		maxGrace: k.EvictionMaxPodGracePeriod,
		images: image.Policy{
			High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		containers: container.Policy{
			MaxPerContainer: c.DeadContainers.PerContainer, MaxTotal: c.DeadContainers.Total, MinAge: c.DeadContainers.MinAge,
		},
		logs:       logs.Policy{MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles)},
		logSize:    k.ContainerLogMaxSize,
		logWorkers: int(*k.ContainerLogMaxWorkers), logsEvery: k.ContainerLogMonitorInterval.Duration,
		localLimits: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation,
	}, nil
}

// job is a kind of work that is done outside the loop, one of each at a time.
type job int

const (
	jobPlace job = iota
	jobCleanUp
	jobImages
	jobLogs
	jobLimits
	// The last three relieve the node's conditions.
	jobMemory
	jobDisk
	jobPID
	jobs
)

// problems are what the daemon's health calls the reliefs.
var problems = [jobs]string{
	jobMemory: "relief of memory pressure", jobDisk: "relief of disk pressure",
	jobPID: "relief of PID pressure",
}

// schedule says when each job is due.
type schedule struct {
	every   [jobs]time.Duration
	next    [jobs]time.Time // zero: at once
	ended   [jobs]time.Time
	running [jobs]bool
}

func newSchedule(s settings) schedule {
	return schedule{every: [jobs]time.Duration{
		jobPlace: placeEvery, jobCleanUp: cleanUpEvery, jobImages: imagesEvery, jobLogs: s.logsEvery, jobLimits: limitsEvery,
	}}
}

// soon makes a job due, not too soon after its last end.
func (s *schedule) soon(j job, now time.Time) {
	if at := s.ended[j].Add(soonest); at.Before(s.next[j]) {
		s.next[j] = at
	}
}

func (s *schedule) due(j job, now time.Time) bool { return !s.running[j] && !now.Before(s.next[j]) }

// begin begins what is due. The loop calls it after each change, and readings come twice a second.
func (s *Service) begin(ctx context.Context, now time.Time) {
	deletes := s.state.waiting(now) == ""
	known := len(s.state.unread) == 0
	if s.state.leftovers(now) {
		s.schedule.soon(jobCleanUp, now)
	}
	for _, j := range []struct {
		job   job
		ready bool
		// prepare takes what the work needs from the loop's state.
		prepare func() work
	}{
		{jobPlace, true, func() work { return s.place }},
		{jobCleanUp, deletes, s.cleanUp},
		{jobImages, deletes && s.fs.Load().known, s.collect},
		{jobLogs, known, s.rotate},
		{jobLimits, known && s.fs.Load().known && s.settings.Load().localLimits, s.limits},
	} {
		if j.ready && s.schedule.due(j.job, now) {
			s.start(ctx, j.job, j.prepare())
		}
	}
}

// work runs outside the loop. The function that it returns runs in the loop at its end.
type work func(context.Context) (done func())

// start does a job's work.
func (s *Service) start(ctx context.Context, j job, do work) {
	s.schedule.running[j] = true
	s.loop.Go(func() {
		done := do(ctx)
		s.loop.Do(ctx, func() {
			now := time.Now()
			s.schedule.running[j], s.schedule.ended[j], s.schedule.next[j] = false, now, now.Add(s.schedule.every[j])
			done()
		})
	})
}
