package deviceplugin

import (
	"context"
	"errors"
	"reflect"
	"time"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
)

const (
	// firstPause and lastPause bound the pause before an announced plugin is connected to again.
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
)

// announcement is a plugin that the registry has found.
type announcement struct {
	resource string
	at       topic.PluginEndpoint
	stop     context.CancelCauseFunc
}

// Add has the resource's plugin be the one at the endpoint, which was announced by plugin.registered. It takes the
// place of one that has registered otherwise.
func (s *Server) Add(resource string, at topic.PluginEndpoint) {
	s.mu.Lock()
	s.wanted[resource] = at
	s.mu.Unlock()
	s.changed()
}

// Remove has the resource lose the plugin that was announced: the last of its sockets is gone.
func (s *Server) Remove(resource string) {
	s.mu.Lock()
	delete(s.wanted, resource)
	s.mu.Unlock()
	s.changed()
}

func (s *Server) changed() {
	select {
	case s.wake <- struct{}{}:
	default: // Run hasn't yet looked at an earlier change
	}
}

// reconcile connects to the plugins that are announced now.
func (s *Server) reconcile(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for resource, a := range s.announcements {
		at, still := s.wanted[resource]
		if still && reflect.DeepEqual(at, a.at) {
			continue
		}
		a.stop(errWithdrew)
		delete(s.announcements, resource)
		// That of another instance goes on until the new one answers.
		if p := s.plugins[resource]; !still && p != nil && p.from != nil {
			p.stop(errWithdrew)
		}
	}
	for resource, at := range s.wanted {
		switch {
		case s.announcements[resource] != nil:
		case len(s.announcements) >= maxPlugins:
			s.ports.Log.Warn("ignoring a device plugin: there are too many", "resource", resource, "most", maxPlugins)
		default:
			s.announce(ctx, resource, at)
		}
	}
}

func (s *Server) announce(ctx context.Context, resource string, at topic.PluginEndpoint) {
	ctx, stop := context.WithCancelCause(ctx)
	a := &announcement{resource: resource, at: at, stop: stop}
	s.announcements[resource] = a
	s.work.Go(func() {
		defer stop(nil)
		s.follow(ctx, a)
	})
}

// follow connects to the announced plugin, and again when it is gone, until ctx ends or another plugin takes its place.
func (s *Server) follow(ctx context.Context, a *announcement) {
	problem := ""
	for failures := 0; ; failures++ {
		begun := time.Now()
		err := s.once(ctx, a)
		if ctx.Err() != nil || errors.Is(err, errReplaced) {
			return
		}
		if text := err.Error(); text != problem {
			problem = text
			s.ports.Log.Warn("device plugin can't be used, retrying", "resource", a.resource, "socket", a.at.Endpoint,
				"error", text)
		}
		if time.Since(begun) > lastPause {
			failures = 0
		}
		pause.For(ctx, pause.After(failures+1, firstPause, lastPause))
	}
}

// once connects to the announced plugin and waits until it is gone. The error says why it is.
func (s *Server) once(ctx context.Context, a *announcement) error {
	p, err := connect(ctx, a.resource, a.at.Endpoint, s.limits)
	if err != nil {
		return err
	}
	p.from = a
	s.ports.Metrics.registrations.WithLabelValues(a.resource).Inc()
	if err := s.handOver(ctx, p); err != nil {
		return err
	}
	select {
	case <-p.ended:
		return p.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
