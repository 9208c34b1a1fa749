package gc

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/internal/evict"
	"kubelot.dev/services/gc/internal/image"
	"kubelot.dev/services/gc/internal/signal"
)

// rounds bound how often images are picked in one go: what they free is known only when they are gone.
const rounds = 10

// errFull marks that nothing is left to remove, without words of its own.
var errFull = errors.New("")

// collect removes images for their age, and for space.
func (s *Service) collect() work {
	known, records := maps.Clone(s.state.pods), s.records
	return func(ctx context.Context) func() {
		next, err := s.removeImages(ctx, known, records, false)
		return func() {
			s.keepRecords(next)
			s.stuck = errors.Is(err, errFull)
			if again := s.report.problems.Set("collection of images", err); again && ctx.Err() == nil {
				s.report.node(corev1.EventTypeWarning, reasonImageGCFailed, err.Error())
			}
		}
	}
}

// keepRecords takes over what a pass has learned; nil is none.
func (s *Service) keepRecords(next map[string]image.Record) {
	if next == nil {
		return
	}
	s.report.problems.Set("records of images", image.Save(s.recordsPath(), s.records, next))
	s.records = next
}

// removeImages removes what is picked, until the low threshold is reached or nothing is left to remove; squeeze takes
// all unused images.
func (s *Service) removeImages(ctx context.Context, known map[string]topic.Pod, records map[string]image.Record,
	squeeze bool,
) (map[string]image.Record, error) {
	var freed, begunAt int64
	for round := range rounds {
		in, err := s.imageInput(ctx, known, records)
		if err != nil {
			return nil, err
		}
		in.Squeeze, in.Begun, records = squeeze, round > 0, in.Records
		if round == 0 {
			begunAt = in.FS.Available
		}
		freed = in.FS.Available - begunAt
		need := image.ToFree(in.Policy, in.FS, in.Begun)
		picked := image.Pick(in)
		removed, err := image.Remove(ctx, s.Images, picked, s.usedBy(ctx), func(c image.Choice) {
			if c.Error == "" && c.Action == topic.ActionRemoveImage {
				s.metrics.images.WithLabelValues(c.Why).Inc()
			}
			s.report.decided(c.Decision)
		})
		switch {
		case err != nil || ctx.Err() != nil:
			return records, err
		case need > 0 && removed == 0 && !squeeze &&
			!slices.ContainsFunc(picked, func(c image.Choice) bool { return c.Young }):
			return records, s.report.full(in, picked, freed)
		case removed == 0 || need == 0:
			return records, nil
		}
	}
	return records, nil
}

// usedBy names the pod that uses an image now. It may have come while other images were removed, which takes minutes on
// a slow disk.
func (s *Service) usedBy(ctx context.Context) func(*runtimeapi.Image) string {
	return func(i *runtimeapi.Image) string {
		snap, err := s.look(ctx)
		if err != nil {
			return "" // ctx has ended, and so does the removal
		}
		return image.InUse([]*runtimeapi.Image{i}, nil, running(snap.known), "")[image.Key(i)]
	}
}

// imageInput reads what images are decided from.
func (s *Service) imageInput(ctx context.Context, known map[string]topic.Pod,
	records map[string]image.Record,
) (image.Input, error) {
	// Images are listed before containers, so an image that is used meanwhile counts as used.
	images, err := s.Images.ListImages(ctx, nil)
	if err != nil {
		return image.Input{}, err
	}
	c, err := takeInventory(ctx, s.env.Bus, s.Containers, known)
	if err != nil {
		return image.Input{}, err
	}
	sandbox, err := s.Images.SandboxImage(ctx)
	if err != nil {
		return image.Input{}, err
	}
	now := time.Now()
	// Only the images' filesystem matters here, so errors of the others are ignored.
	obs, _ := s.Sensor.Disks(now, signal.Filesystems{Image: s.fs.Load().Image})
	fs := obs[evict.ImageFSAvailable]
	if fs.Capacity <= 0 {
		s.report.node(corev1.EventTypeWarning, reasonInvalidCapacity, invalidCapacityMessage)
		return image.Input{}, errors.New(invalidCapacityMessage)
	}
	in := image.Input{
		Policy: s.settings.Load().images, Images: images, InUse: image.InUse(images, c.containers, c.pods, sandbox),
		FS: image.Filesystem{Capacity: fs.Capacity, Available: fs.Available}, Now: now,
	}
	in.Records = image.Update(records, images, in.InUse, now)
	return in, nil
}
