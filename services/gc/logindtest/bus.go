package logindtest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// policy is that of a bus on which everything is allowed.
const policy = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy>
</busconfig>
`

// Bus is a system bus of the test's own.
type Bus struct {
	// Address is for DBUS_SYSTEM_BUS_ADDRESS.
	Address string
	config  string
	process *exec.Cmd
}

// StartBus runs dbus-daemon until the test ends.
func StartBus(t testing.TB) *Bus {
	t.Helper()
	dir, err := os.MkdirTemp("", "dbus") //nolint:usetesting // a socket's path may not be long
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "bus")
	b := &Bus{Address: "unix:path=" + socket, config: filepath.Join(dir, "bus.conf")}
	if err := os.WriteFile(b.config, fmt.Appendf(nil, policy, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.Stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b.Start(t)
	return b
}

// Start runs dbus-daemon again after Stop.
func (b *Bus) Start(t testing.TB) {
	t.Helper()
	b.process = exec.Command("dbus-daemon", "--config-file="+b.config, "--nofork", "--print-address") //nolint:noctx // Stop ends it
	out, err := b.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.process.Start(); err != nil {
		t.Fatalf("%v: install Debian's package dbus-daemon", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, b.Address) {
		t.Fatalf("dbus-daemon says %q, %v", line, err)
	}
}

// Stop kills dbus-daemon, if it runs.
func (b *Bus) Stop() {
	if b.process != nil {
		_ = b.process.Process.Kill() // it has ended already
		_ = b.process.Wait()         // killed
		b.process = nil
	}
}
