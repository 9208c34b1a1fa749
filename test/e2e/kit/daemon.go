package kit

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Daemon is the process ID of the crew's daemon of that name, such as podsync; an error if it isn't running. In the
// compact layout it is that of the whole crew.
func (b *Bed) Daemon(name string) (int, error) {
	if b.Compact() {
		name = "compact"
	}
	entries, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	parent := " " + strconv.Itoa(b.Node.PID()) + " "
	for _, path := range entries {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // ended meanwhile
		}
		// After the command's name in parentheses come the state and the parent.
		_, rest, _ := strings.Cut(string(stat), ") ")
		if len(rest) < 2 || !strings.HasPrefix(rest[1:], parent) {
			continue
		}
		dir := filepath.Dir(path)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil {
			continue
		}
		program, _, _ := bytes.Cut(command, []byte{0})
		if filepath.Base(string(program)) == "kubelot-"+name {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("no process kubelot-%s is a child of kubelot up (%d)", name, b.Node.PID())
}

// Signal sends a signal to the crew's daemon of that name, as soon as it runs. It waits for the end of one that is to
// end: until then it would pass for the next one.
func (b *Bed) Signal(t testing.TB, name string, signal syscall.Signal) {
	t.Helper()
	var pid int
	Eventually(t, "the process of kubelot-"+name, func() (err error) {
		if pid, err = b.Daemon(name); err != nil {
			return err
		}
		return syscall.Kill(pid, signal)
	})
	if signal != syscall.SIGKILL && signal != syscall.SIGTERM {
		return
	}
	Eventually(t, "the end of kubelot-"+name, func() error {
		if now, err := b.Daemon(name); err == nil && now == pid {
			return fmt.Errorf("process %d is still there", pid)
		}
		return nil
	})
}
