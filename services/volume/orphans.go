package volume

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

const (
	// readTimeout bounds the reading of retained states for the search.
	readTimeout = 10 * time.Second
	// searchPause is the pause before the search is repeated, because it could not be made or found pods that
	// still run.
	searchPause = 15 * time.Second
	// freePause is the pause before disks that no pod has are looked for again, because one couldn't be freed.
	freePause = 5 * time.Minute
)

// once is how far something is that is done once after each start, and again after a pause as long as it fails.
type once struct {
	running, complete bool
	notBefore         time.Time
}

func (o once) due(now time.Time) bool { return !o.running && !o.complete && !now.Before(o.notBefore) }

func (o once) wakeAt(now time.Time) time.Time {
	if o.complete || !o.notBefore.After(now) {
		return time.Time{}
	}
	return o.notBefore
}

// leftovers are the pods of which there is something.
type leftovers struct {
	// dirs are the UIDs with volumes on disk, states those with a retained volume.state.
	dirs, states []string
	// alive are the UIDs of which the runtime has something running.
	alive map[string]bool
	err   error
}

// plainName reports whether name is one component of a path.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && filepath.Base(name) == name && len(name) <= 253
}

// findLeftovers begins the search once all pods are known.
func (s *Service) findLeftovers(ctx context.Context, now time.Time) {
	if !s.sources.Ready || !s.orphans.due(now) {
		return
	}
	s.orphans.running = true
	s.workers.Go(func() {
		l := s.search(ctx)
		s.tell(func() { s.foundLeftovers(l) })
	})
}

func (s *Service) search(ctx context.Context) (l leftovers) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTimeout, errors.New("the bus has not answered"))
	defer cancel()
	if l.alive, l.err = s.alive(ctx); l.err != nil {
		return l
	}
	states, err := topic.VolumeState.Read(ctx, s.conn)
	if err != nil {
		return leftovers{err: err}
	}
	for uid := range states {
		l.states = append(l.states, uid)
	}
	uids, err := mounts.Names(s.root.pods())
	if err != nil {
		return leftovers{err: err}
	}
	for _, uid := range uids {
		entries, err := mounts.Names(s.root.pod(uid))
		if err == nil && slices.ContainsFunc(entries, isOurs) {
			l.dirs = append(l.dirs, uid)
		}
	}
	return l
}

// freeDisks frees the disks that no pod has any more, once all pods are known. It has a worker of its own: a disk that
// doesn't answer may hold it up for ever.
func freeDisks(ctx context.Context, s *Service, now time.Time) {
	if !s.sources.Ready || !s.disks.due(now) {
		return
	}
	s.disks.running = true
	s.workers.Go(func() {
		var errs []error
		for _, k := range s.kinds {
			if k, ok := k.Plugin.(leaver); ok {
				errs = append(errs, k.Leftovers(ctx))
			}
		}
		err := errors.Join(errs...)
		if err != nil && ctx.Err() == nil {
			s.log.Warn("can't free disks that no pod has any more, retrying", "error", err)
		}
		s.tell(func() { s.disks = once{complete: err == nil, notBefore: s.now().Add(freePause)} })
	})
}

// leaver is a kind of volumes that may leave something outside the directories of pods when it is interrupted.
type leaver interface {
	// Leftovers frees what no pod uses.
	Leftovers(ctx context.Context) error
}

// isOurs reports whether the entry of a pod's directory is one that this daemon removes.
func isOurs(name string) bool {
	return name == plugin.VolumesDir || name == plugin.DevicesDir || name == "volume-subpaths"
}

var errNoRelist = errors.New("it is not known yet what the runtime runs")

// alive are the pods of which the runtime has something running.
func (s *Service) alive(ctx context.Context) (map[string]bool, error) {
	runtimes, err := topic.NodeRuntime.Read(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	if runtimes[""].FirstRelist.IsZero() {
		return nil, errNoRelist
	}
	seen, err := topic.PLEGEvent.Read(ctx, s.conn)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	for uid, o := range seen {
		alive[uid] = slices.ContainsFunc(o.Sandboxes, func(b topic.Sandbox) bool { return b.Ready }) ||
			slices.ContainsFunc(o.Containers, func(c topic.Container) bool {
				return c.State == topic.ContainerRunning || c.State == topic.ContainerUnknown
			})
	}
	return alive, nil
}

// foundLeftovers makes an entry for each directory of which no source knows, so that it is cleaned up.
func (s *Service) foundLeftovers(l leftovers) {
	s.orphans.running, s.orphans.complete = false, l.err == nil
	if l.err != nil {
		s.log.Info("can't look yet for what earlier pods have left", "error", l.err)
	}
	for _, uid := range l.dirs {
		switch {
		case s.known(uid):
		case l.alive[uid]:
			s.orphans.complete = false
		default:
			s.log.Info("removing the volumes of a pod that is gone", "uid", uid)
			p := &pod{ref: topic.Ref{UID: uid}, gone: true}
			s.pods[uid], s.changed[p] = p, true
		}
	}
	for _, uid := range l.states {
		if s.known(uid) || l.alive[uid] {
			continue
		}
		if err := s.ports.State.Delete(uid); err != nil {
			s.log.Error("can't remove the state of a pod's volumes", "uid", uid, "error", err)
		}
	}
	s.orphans.notBefore = s.now().Add(searchPause)
}

// known reports whether there is a reason to leave the pod's volumes to the normal way of things.
func (s *Service) known(uid string) bool {
	return s.pods[uid] != nil || s.listed[uid]
}
