package kit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// LackMemory has the node of a bed that no other test uses lack memory until relieve is called: its threshold is more
// than any machine has. Each of its pods is in the way.
func (b *Bed) LackMemory(t testing.TB) (relieve func()) {
	t.Helper()
	const threshold = "memory.available: 100Mi"
	original, err := os.ReadFile(b.Node.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(original), threshold) {
		t.Fatalf("%s isn't in the node's configuration:\n%s", threshold, original)
	}
	b.Reconfigure(t, strings.Replace(string(original), threshold, "memory.available: 100000Gi", 1))
	return func() {
		t.Helper()
		// The condition is not to last for its usual five minutes.
		b.Reconfigure(t, string(original)+"evictionPressureTransitionPeriod: 1s\n")
	}
}

// Reconfigure writes the node's configuration and has the daemons read it.
func (b *Bed) Reconfigure(t testing.TB, config string) {
	t.Helper()
	if err := os.WriteFile(b.Node.ConfigFile(), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(b.Node.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// Loopback mounts a new ext4 filesystem of that size in MiB at dir, in a bed. The bed unmounts it in the end, and
// removes its file, also after a test that was killed. The loop device goes with it.
func Loopback(t testing.TB, dir string, mib int) {
	t.Helper()
	file := dir + ".disk"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"truncate", "-s", strconv.Itoa(mib) + "M", file},
		{"mkfs.ext4", "-q", "-m", "0", "-N", "20000", file},
		{"mount", "-o", "loop", file, dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "lost+found")); err != nil {
		t.Fatal(err)
	}
}
