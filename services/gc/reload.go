package gc

import (
	"context"
	"time"

	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/gc/internal/evict"
)

// reloadable are the fields of the configuration that gc takes while it runs. The others that concern it are part of
// how it was built.
var reloadable = []string{
	"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "mergeDefaultEvictionSettings",
	"evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod",
	"imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
	"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",
}

// reload takes other settings. Work that is under way goes on with those that it has read. The error says what is wrong
// with the configuration, or that gc stops.
func (s *Service) reload(ctx context.Context, c *config.Config) error {
	next, err := newSettings(c)
	if err != nil {
		return err
	}
	_, err = loop.Ask(ctx, s.loop, func() struct{} {
		s.adopt(next, time.Now())
		return struct{}{}
	})
	return err
}

// adopt puts other settings in the place of the present ones. The next reading is judged by them.
func (s *Service) adopt(next settings, now time.Time) {
	before := s.settings.Swap(&next)
	s.tracker.SetThresholds(evict.ForLayout(next.thresholds, s.fs.Load().split))
	s.tracker.SetTransition(next.transition)
	s.schedule.every[jobLogs] = next.logsEvery
	if before.logs != next.logs || before.logsEvery != next.logsEvery {
		s.schedule.soon(jobLogs, now)
	}
	if before.images != next.images {
		s.stuck = false
		s.schedule.soon(jobImages, now)
	}
}
