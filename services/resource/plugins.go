package resource

import (
	"context"
	"maps"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin"
)

// announced takes device plugins that have registered in plugins_registry.
type announced interface {
	Add(resource string, at topic.PluginEndpoint)
	Remove(resource string)
	// Idle reports whether no plugin is registered, in plugins_registry or not. One may take long to list its devices.
	Idle() bool
}

// plugin takes a plugin that has registered, or is gone.
func (s *Service) plugin(c bus.Change[topic.Plugin]) {
	switch {
	case c.Synced:
		s.known.plugins = true
	case c.Deleted:
		if before, known := s.registered[c.Key]; known && before.Type == topic.DevicePlugin {
			s.announce.Remove(before.Name)
		}
		delete(s.registered, c.Key)
	default:
		s.registered[c.Key] = c.Value
		if c.Value.Type == topic.DevicePlugin {
			s.announce.Add(c.Value.Name, c.Value.PluginEndpoint)
		}
	}
	if s.known.plugins && s.claims != nil {
		s.claims.Registered(maps.Clone(s.registered))
	}
}

// report takes what a device plugin lists, or that it is gone.
func (s *Service) report(ctx context.Context, r deviceplugin.Report) {
	s.loop.Do(ctx, func() {
		s.changed = true
		for _, p := range s.pods { // of those that wait for it the first is to be tried first
			p.notBefore, p.changed = time.Time{}, true
		}
		if r.Away {
			s.holdings.devices.Away(r.Resource, s.now())
			return
		}
		s.holdings.devices.Listed(r.Resource, r.Devices)
		s.store.Soon()
	})
}
