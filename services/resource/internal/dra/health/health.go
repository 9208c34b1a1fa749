// Package health knows how the devices of DRA drivers are, by what the drivers report. It has no clock, context or I/O.
//
// # Guarantees
//
//   - A device that its driver has not reported for its time limit is unknown, whether the driver is there or not. A
//     driver that is started again within that time changes nothing.
//   - What is kept is bounded: the number of a driver's devices and the length of messages.
package health

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/oneline"
)

const (
	// DefaultLimit is the time limit of devices whose driver names none.
	DefaultLimit = 30 * time.Second
	// longest bounds the time limit that a driver may name.
	longest = 365 * 24 * time.Hour
	// most bounds how many devices of a driver are kept.
	most = 8192
)

// Key names a device of a driver.
type Key struct{ Pool, Device string }

// Report is what a driver says of a device.
type Report struct {
	Key
	Status  corev1.ResourceHealthStatus
	Message string
	// Seconds is the time limit; without one, or with one below zero, it is DefaultLimit.
	Seconds int64
}

// Device is how a device is.
type Device struct {
	Status  corev1.ResourceHealthStatus
	Message string
	// At is when its driver has last reported it.
	At time.Time
	// Limit is how long that is valid.
	Limit time.Duration
}

func (d Device) ends() time.Time { return d.At.Add(d.Limit) }

// Book has the devices of all drivers, by the drivers' names.
type Book map[string]map[Key]Device

// Of is how a device is.
func (b Book) Of(driver, pool, device string) (corev1.ResourceHealthStatus, string) {
	d, known := b[driver][Key{pool, device}]
	if !known {
		return corev1.ResourceHealthStatusUnknown, ""
	}
	return d.Status, d.Message
}

// Update takes a driver's list of all its devices, and reports whether any is different now. Those that aren't in the
// list stay as they are until their time is over.
func (b Book) Update(driver string, list []Report, now time.Time) bool {
	devices := b[driver]
	if devices == nil {
		devices = map[Key]Device{}
	}
	changed := false
	for _, r := range list {
		before, known := devices[r.Key]
		if !known && len(devices) >= most {
			continue
		}
		after := Device{r.Status, Text(r.Message), now, limit(r.Seconds)}
		changed = changed || !known || before.Status != after.Status || before.Message != after.Message ||
			before.Limit != after.Limit
		devices[r.Key] = after
	}
	if len(devices) > 0 {
		b[driver] = devices
	}
	return changed
}

func limit(seconds int64) time.Duration {
	if seconds <= 0 {
		return DefaultLimit
	}
	return time.Duration(min(seconds, int64(longest/time.Second))) * time.Second
}

// Text makes a driver's message one that the API takes.
func Text(message string) string {
	return oneline.Of(message, corev1.ResourceHealthMessageMaxLength)
}

// Expire forgets the devices whose time is over, and returns their drivers.
func (b Book) Expire(now time.Time) []string {
	var drivers []string
	for driver, devices := range b {
		before := len(devices)
		for key, d := range devices {
			if now.After(d.ends()) {
				delete(devices, key)
			}
		}
		if len(devices) < before {
			drivers = append(drivers, driver)
		}
		if len(devices) == 0 {
			delete(b, driver)
		}
	}
	return drivers
}

// Next is when Expire has something to do; zero means never.
func (b Book) Next() time.Time {
	var next time.Time
	for _, devices := range b {
		for _, d := range devices {
			if end := d.ends().Add(time.Nanosecond); next.IsZero() || end.Before(next) {
				next = end
			}
		}
	}
	return next
}
