package machine

import (
	"os"
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

// BootID names this run of the machine; it is empty where that isn't known.
func BootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(id)
}
