package psi

import (
	"context"
	"testing"
	"time"
)

// The alarm waits for its time, ends with its context, and works without the kernel's information.
func TestAlarm(t *testing.T) {
	a, err := NewAlarm(t.TempDir())
	if err == nil {
		t.Error("no pressure-stall information, and no error")
	}
	defer a.Close()
	if begin := time.Now(); a.Wait(t.Context(), 20*time.Millisecond) || time.Since(begin) < 20*time.Millisecond {
		t.Error("it went off too early")
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if begin := time.Now(); a.Wait(ctx, time.Minute) || time.Since(begin) > 30*time.Second {
		t.Error("it doesn't end with its context")
	}
	kernel, err := NewAlarm("/proc")
	if err != nil {
		t.Skipf("the kernel has no pressure-stall information: %v", err)
	}
	defer kernel.Close()
	kernel.Wait(t.Context(), 10*time.Millisecond)
}
