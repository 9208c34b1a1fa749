package csi

import (
	"context"
	"errors"
	"fmt"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/driver"
)

// errNotThere is of a volume that the pod doesn't have any more.
var errNotThere = errors.New("the pod doesn't have the volume any more")

// measured reports whether the driver says how full its volumes are. One that has just come hasn't told yet and is
// asked: nobody looks at the volume again.
func (v *kept) measured(ctx context.Context, name string) bool {
	c := v.drivers.Client(name)
	defer c.Release()
	if c == nil {
		return false
	}
	can := c.Known()
	if can == nil {
		can, _ = c.Capabilities(ctx) // no figures are no reason for the pod not to have its volume
	}
	return can != nil && can.Stats
}

// Usage asks the driver how full the volume is that a pod has at the path, or as the device with that link.
func (v *kept) Usage(ctx context.Context, path string) (topic.VolumeUsageReply, error) {
	t, r, _ := v.atPath(path)
	if r == nil {
		return topic.VolumeUsageReply{}, errNotThere
	}
	c := v.drivers.Client(t.driver)
	if c == nil {
		return topic.VolumeUsageReply{}, errors.New(missing(facts{driver: t.driver}).why)
	}
	defer c.Release()
	request := &csiapi.NodeGetVolumeStatsRequest{VolumeId: t.handle, VolumePath: t.point}
	if t.block {
		request.VolumePath = t.device.Point
	}
	ctx, cancel := driver.AskContext(ctx)
	defer cancel()
	answer, err := c.Node.NodeGetVolumeStats(ctx, request)
	if err != nil {
		return topic.VolumeUsageReply{}, fmt.Errorf("ask driver %s how full volume %s is (NodeGetVolumeStats): %w", t.driver,
			t.name, err)
	}
	return driver.Usage(answer)
}
