// Package mounttest gives the tests of a package a mount namespace of their own. What they mount goes with their
// process, also when that is killed, and nothing else on the machine sees it.
package mounttest

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// entered is the environment variable of a process that has its own namespace.
const entered = "KUBELOT_TEST_MOUNTS"

// Enter moves the process into a mount namespace of its own: it executes the same program there. A TestMain calls it
// first. Where that isn't allowed, as for anybody but root, it does nothing, since such a process can't mount either.
func Enter() {
	if os.Getenv(entered) != "" {
		return
	}
	// A namespace belongs to a thread, and the program that it executes gets the one of this thread.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		runtime.UnlockOSThread()
		return
	}
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), entered+"=yes"))
	}
	panic(fmt.Errorf("start the tests in a mount namespace of their own: %w", err))
}
