package gc

import (
	"context"
	"errors"
	"maps"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/tree"
	"kubelot.dev/services/gc/internal/container"
	"kubelot.dev/services/gc/internal/logs"
)

// cleanUp removes dead containers and sandboxes, and the logs of pods that are gone.
func (s *Service) cleanUp() work {
	known, inUse := maps.Clone(s.state.pods), logsInUse(s.state.seen)
	return func(ctx context.Context) func() {
		began := time.Now()
		c, err := takeInventory(ctx, s.env.Bus, s.Containers, known)
		if err == nil {
			_, tried, errDead := s.removeDead(ctx, c, false)
			if tried {
				// The steps before may have taken minutes, and pods may have come meanwhile.
				c, err = takeInventory(ctx, s.env.Bus, s.Containers, known)
			}
			if err == nil {
				err = s.removeLeftovers(ctx, c, inUse, began)
			}
			err = errors.Join(errDead, err)
		}
		return func() {
			if s.report.problems.Set("collection of containers", err); err != nil && ctx.Err() == nil {
				s.report.node(corev1.EventTypeWarning, reasonContainerGC, err.Error())
			}
		}
	}
}

// pick decides which dead containers and sandboxes to remove; squeeze is for a node that is short of disk space.
func (s *Service) pick(c inventory, squeeze bool) []container.Choice {
	return container.Pick(container.Input{
		Policy: s.settings.Load().containers, Containers: c.containers, Sandboxes: c.sandboxes, Life: c.life,
		Now: c.at, Squeeze: squeeze,
	})
}

// removeDead removes what pick chooses. of are the UIDs of the pods whose containers were removed, tried is true if
// there was anything to remove.
func (s *Service) removeDead(ctx context.Context, c inventory, squeeze bool) (of []string, tried bool, err error) {
	var errs []error
	failed := map[string]bool{}
	for _, choice := range s.pick(c, squeeze) {
		if ctx.Err() != nil {
			break
		}
		var err error
		switch choice.Action {
		case topic.ActionRemoveContainer:
			err = s.removeContainer(ctx, choice)
			failed[choice.Pod.UID] = failed[choice.Pod.UID] || err != nil
		case topic.ActionRemoveSandbox:
			if failed[choice.Pod.UID] {
				continue // one of its containers may still be there
			}
			err = s.removeSandbox(ctx, choice.Object)
		default:
			continue
		}
		if err != nil {
			choice.Error = err.Error()
			errs = append(errs, err)
		}
		tried = true
		if err == nil && choice.Action == topic.ActionRemoveContainer {
			of = append(of, choice.Pod.UID)
		}
		s.report.decided(choice.Decision)
	}
	return of, tried, errors.Join(errs...)
}

func (s *Service) removeContainer(ctx context.Context, choice container.Choice) error {
	if err := s.Containers.RemoveContainer(ctx, choice.Object); err != nil {
		return err
	}
	if choice.Unnamed {
		return nil // its log goes with the pod's
	}
	cfg := s.env.Config
	return logs.RemoveOf(cfg.PodLogsDir, cfg.ContainerLogsDir, *choice.Pod, choice.Name, choice.RestartCount)
}

// removeSandbox stops the sandbox first, which removes what is left of its network.
func (s *Service) removeSandbox(ctx context.Context, id string) error {
	if err := s.Containers.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	return s.Containers.RemovePodSandbox(ctx, id)
}

// removeLeftovers removes the logs of pods that are gone, and the links to logs that are gone. inUse are the logs that
// were in use when the work began.
func (s *Service) removeLeftovers(ctx context.Context, c inventory, inUse map[string]bool, began time.Time) error {
	dirs, errDirs := s.leftDirs(c)
	errDirs = errors.Join(errDirs, s.removeEach(dirs, func(dir string) error { return tree.Remove(ctx, dir) }))
	// Only now, when their logs are removed, are links left without a log.
	links, errLinks := s.leftLinks(c, inUse, began)
	return errors.Join(errDirs, errLinks, s.removeEach(links, os.Remove))
}

func (s *Service) removeEach(found []topic.Decision, remove func(path string) error) error {
	var errs []error
	for _, d := range found {
		if err := remove(d.Object); err != nil {
			d.Error = err.Error()
			errs = append(errs, err)
		}
		s.report.decided(d)
	}
	return errors.Join(errs...)
}

// leftDirs are the log directories of pods that are gone.
func (s *Service) leftDirs(c inventory) ([]topic.Decision, error) {
	return logs.Dirs(s.env.Config.PodLogsDir, c.known, c.at)
}

// leftLinks are the links to logs that are gone.
func (s *Service) leftLinks(c inventory, inUse map[string]bool, at time.Time) ([]topic.Decision, error) {
	return logs.Links(s.env.Config.ContainerLogsDir, s.env.Config.PodLogsDir, inUse, c.known, at)
}
