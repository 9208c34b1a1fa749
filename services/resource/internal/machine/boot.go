package machine

import (
	"time"

	"golang.org/x/sys/unix"
)

// Booted is when the machine was booted, by the clock as it is set now; zero where that isn't known.
func Booted() time.Time {
	var since unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &since) != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(since.Nano()))
}
