package volume

import (
	"context"
	"errors"
	"fmt"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/subpath"
)

// subPath answers volume.subpath. The binding is done here, not by the goroutine of Run; that only notes
// that it goes on, so that the volumes aren't unmounted meanwhile.
func (s *Service) subPath(ctx context.Context, r topic.SubPathRequest) (topic.SubPathReply, error) {
	plans := make(chan bindPlan, 1)
	if !s.tell(func() { plans <- s.planBind(r) }) {
		return topic.SubPathReply{}, bus.WithKind(bus.ErrUnavailable, errors.New("the volume daemon stops"))
	}
	plan := <-plans
	if plan.err != nil {
		return topic.SubPathReply{}, plan.err
	}
	answers := make(chan bindPlan, 1)
	s.workers.Go(func() {
		paths, err := map[int]string(nil), answer(ctx, s.kinds, plan)
		if err == nil {
			paths, err = bindAll(ctx, r, plan.mounts)
		}
		s.tell(func() {
			delete(plan.pod.binds, r.Container)
			s.changedIfThere(plan.pod)
		})
		answers <- bindPlan{paths: paths, err: err}
	})
	select {
	case a := <-answers:
		return topic.SubPathReply{Paths: a.paths}, a.err
	case <-ctx.Done():
		err := fmt.Errorf("subPath mounts of container %q: the volume's filesystem does not answer: %w", r.Container,
			context.Cause(ctx))
		return topic.SubPathReply{}, bus.WithKind(bus.ErrUnavailable, err)
	}
}

// answerer is a kind of volumes whose server may not answer.
type answerer interface {
	// Answers is an error if the server of the volume in dir doesn't answer.
	Answers(ctx context.Context, dir string) error
}

// answer asks the servers of the volumes before they are touched: a call that hangs can't be ended, and the volume
// could not be unmounted before it.
func answer(ctx context.Context, kinds plugin.List, plan bindPlan) error {
	for _, m := range plan.mounts {
		kind, dir, _ := kinds.ByPath(m.PodDir, m.VolumePath)
		if a, ok := kind.Plugin.(answerer); ok {
			if err := a.Answers(ctx, dir); err != nil {
				return bus.WithKind(bus.ErrUnavailable, fmt.Errorf("volume %q: %w", m.Volume, err))
			}
		}
	}
	return nil
}

// bindPlan is what is to be bound, or was.
type bindPlan struct {
	pod    *pod
	mounts []subpath.Mount
	paths  map[int]string
	err    error
}

// planBind looks up where the volumes are.
func (s *Service) planBind(r topic.SubPathRequest) bindPlan {
	p := s.pods[r.UID]
	if p == nil || p.update.Pod == nil {
		return bindPlan{err: bus.WithKind(bus.ErrNotFound, fmt.Errorf("pod %s/%s (%s) has no volumes here",
			r.Namespace, r.Name, r.UID))}
	}
	if stage := s.stage(p); stage != topic.Syncing {
		return bindPlan{err: bus.WithKind(bus.ErrRefused, fmt.Errorf("pod %s/%s is %s, its volumes are no longer bound",
			r.Namespace, r.Name, stage))}
	}
	if p.binds[r.Container] {
		// Another call would hang as well, on a thread of its own.
		return bindPlan{err: bus.WithKind(bus.ErrUnavailable, fmt.Errorf("subPath mounts of container %q: an earlier call "+
			"goes on: the volume's filesystem does not answer", r.Container))}
	}
	plan := bindPlan{pod: p}
	for _, m := range r.Mounts {
		v := p.volume(m.Volume)
		if v == nil || v.phase != topic.VolumeMounted || v.result.HostPath == "" {
			return bindPlan{err: bus.WithKind(bus.ErrUnavailable, fmt.Errorf("container %q: volume %q is not mounted",
				r.Container, m.Volume))}
		}
		plan.mounts = append(plan.mounts, subpath.Mount{
			PodDir: s.root.pod(r.UID), Volume: v.innerName(), VolumePath: v.result.HostPath,
			Container: r.Container, Index: m.Index, SubPath: m.SubPath, Inherit: v.result.HostIDs,
		})
	}
	if p.binds == nil {
		p.binds = map[string]bool{}
	}
	p.binds[r.Container] = true
	return plan
}

func bindAll(ctx context.Context, r topic.SubPathRequest, mounts []subpath.Mount) (map[int]string, error) {
	paths := make(map[int]string, len(mounts))
	for _, m := range mounts {
		path, err := subpath.Bind(ctx, m)
		if err != nil {
			// Its kind is bus.ErrRefused, or bus.ErrUnavailable while the daemon stops, as of any error that is given none.
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w",
				nameOf(r, m.Index), r.Container, err)
		}
		paths[m.Index] = path
	}
	return paths, nil
}

// nameOf is the name that the pod gives to the volume of a mount.
func nameOf(r topic.SubPathRequest, index int) string {
	for _, m := range r.Mounts {
		if m.Index == index {
			return m.Volume
		}
	}
	return ""
}
