package csi

import (
	"path/filepath"
	"time"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// kept are the volumes that pods have: what is known of them, and what is done with them while they stay.
type kept struct {
	disk
	drivers *driver.Drivers
	ports   Ports
	locks   *plugin.Locks
}

// InPlace is what is known of the volume that a pod has at the path, or as the device with that link.
func (v *kept) InPlace(path string) plugin.InPlace {
	t, r, ok := v.atPath(path)
	place := plugin.InPlace{OfDriver: ok}
	if r == nil {
		return place
	}
	place.There = v.has(t)
	place.Grows = t.persistent && v.Grows(t.driver)
	var err error
	t.object, err = v.drivers.Object(t.driver)
	if place.Due = t.republishes(); err != nil {
		// It isn't known whether the driver wants to publish again: the volume serves as it is until then.
		place.LookAgain = time.Now().Add(unreadPause)
	}
	return place
}

// atPath is the volume that a pod has at the path, or as the device with that link. It has no driver where it is none
// of these volumes, or not yet, or no more.
func (v *kept) atPath(path string) (t target, r record, ok bool) {
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
