package volume

import (
	"errors"
	"slices"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// calls are what a volume's worker asks of the goroutine of Run.
type calls struct {
	service *Service
	pod     *pod
	volume  *volume
	alive   func()
}

// Take notes which persistent volume the pod uses; the owner of the state decides, so that of two pods that ask at
// the same time only one gets it.
func (c calls) Take(name string, alone bool) error {
	answer := make(chan error, 1)
	ask := func() { answer <- c.service.take(c.pod, c.volume, name, alone) }
	if !c.service.tell(ask) {
		return errors.New("the volume daemon stops")
	}
	return <-answer
}

func (c calls) Warn(reason, message string) {
	c.service.ports.Events.Record(topic.Event{
		Kind: "Pod", Ref: c.pod.ref, Type: "Warning",
		Reason: reason, Message: message,
	})
}

func (c calls) Tell(e topic.Event) { c.service.ports.Events.Record(e) }

func (c calls) Alive() { c.alive() }

func (s *Service) take(p *pod, v *volume, name string, alone bool) error {
	if alone && s.taken(p, name) {
		return plugin.ErrInUse
	}
	v.persistent = name
	return nil
}

// taken reports whether another pod uses the persistent volume.
func (s *Service) taken(p *pod, name string) bool {
	for _, other := range s.pods {
		if other != p && slices.ContainsFunc(other.volumes, func(v *volume) bool { return v.persistent == name }) {
			return true
		}
	}
	return false
}
