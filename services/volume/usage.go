package volume

import (
	"context"
	"errors"
	"fmt"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// usage answers volume.usage. The driver is asked here, not by the goroutine of Run: it may not answer.
func (s *Service) usage(ctx context.Context, r topic.VolumeUsageRequest) (topic.VolumeUsageReply, error) {
	found := make(chan plugin.Result, 1)
	if !s.tell(func() { found <- mounted(s.pods, r.UID, r.Volume) }) {
		return topic.VolumeUsageReply{}, bus.WithKind(bus.ErrUnavailable, errors.New("the volume daemon stops"))
	}
	result := <-found
	if path := result.HostPath + result.Device; result.Measured && path != "" && s.ports.CSI != nil {
		usage, err := s.ports.CSI.Usage(ctx, path)
		if err != nil {
			err = bus.WithKind(bus.ErrUnavailable, err)
		}
		return usage, err
	}
	return topic.VolumeUsageReply{}, bus.WithKind(bus.ErrNotFound, fmt.Errorf(
		"pod %s/%s has no volume %q of which a driver says how full it is", r.Namespace, r.Name, r.Volume))
}

// mounted is a volume that the pod has; the zero value where it doesn't.
func mounted(pods map[string]*pod, uid, name string) plugin.Result {
	if p := pods[uid]; p != nil {
		if v := p.volume(name); v != nil && v.phase == topic.VolumeMounted {
			return v.result
		}
	}
	return plugin.Result{}
}
