package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// errNotThere is of a volume that the pod doesn't have any more.
var errNotThere = errors.New("the pod doesn't have the volume any more")

// atPath is the volume that a pod has at the path, or as the device with that link. It has no driver where it is none
// of these volumes, or not yet, or no more.
func (v *Volumes) atPath(path string) (t target, r record, ok bool) {
	kind := filepath.Dir(path)
	if t.block = filepath.Base(filepath.Dir(kind)) == plugin.DevicesDir; !t.block {
		path, kind = kind, filepath.Dir(kind)
	}
	if filepath.Base(kind) != dirName {
		return target{}, nil, false
	}
	t.name = filepath.Base(path)
	t = v.at(t, plugin.PodOf(path))
	r, err := readRecord(t.dir)
	if err != nil || r == nil {
		return t, nil, true
	}
	t.driver, t.handle, t.persistent = r[keyDriver], r[keyHandle], r[keyMode] != ephemeralMode
	return t, r, true
}

// measured reports whether the driver says how full its volumes are.
func (v *Volumes) measured(name string) bool {
	c := v.drivers.Client(name)
	defer c.Release()
	if c == nil {
		return false
	}
	can := c.Known()
	return can != nil && can.Stats
}

// Usage asks the driver how full the volume is that a pod has at the path, or as the device with that link.
func (v *Volumes) Usage(ctx context.Context, path string) (topic.VolumeUsageReply, error) {
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
	return usageOf(answer)
}

// usageOf checks what a driver says.
func usageOf(answer *csiapi.NodeGetVolumeStatsResponse) (u topic.VolumeUsageReply, err error) {
	for _, entry := range answer.GetUsage() {
		amount := topic.VolumeAmount{Total: entry.GetTotal(), Available: entry.GetAvailable(), Used: entry.GetUsed()}
		if amount.Total < 0 || amount.Available < 0 || amount.Used < 0 {
			return u, fmt.Errorf("the driver says that of %d %s %d are used and %d available (NodeGetVolumeStats)",
				amount.Total, entry.GetUnit(), amount.Used, amount.Available)
		}
		switch entry.GetUnit() {
		case csiapi.VolumeUsage_BYTES:
			u.Bytes = amount
		case csiapi.VolumeUsage_INODES:
			u.Inodes = amount
		}
	}
	return u, nil
}
