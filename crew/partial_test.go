package crew

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/embed"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
)

// The real daemons work in two groups: podsync in the bus's process, the others apart from it. The bus's group dies as
// of a panic in any goroutine, and its supervisor starts it again, without its store. The other group goes on meanwhile
// and comes back to the new bus.
func TestGroupsOfRealDaemons(t *testing.T) {
	dir, bed := idleBed(t)
	executable, others := filepath.Join(dir, Self), slices.DeleteFunc(names(Daemons()), func(name string) bool {
		return name == "bus" || name == "podsync"
	})
	busGroup := []string{executable, RunGroup, "bus,podsync"}
	first := start(t, bed, "first", busGroup...)
	apart := start(t, bed, "apart", executable, RunGroup, strings.Join(others, ","))

	run, log := filepath.Join(bed, "run"), slog.New(slog.DiscardHandler)
	transport, err := nats.Dial(t.Context(), nats.Options{
		Socket: filepath.Join(run, "bus.sock"), KeyFile: embed.KeyFile(filepath.Join(run, "keys"), "cli"), Daemon: "cli",
		Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := bus.NewConn(transport, "cli", log)
	defer conn.Close()
	said := func(podsync int) {
		t.Helper()
		missing := []string{"all"}
		for end := time.Now().Add(patience); len(missing) > 0; time.Sleep(100 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("these daemons say nothing of themselves: %v", missing)
			}
			health, err := topic.Health.Read(t.Context(), conn)
			if err != nil {
				t.Fatal(err)
			}
			missing = nil
			for name, pid := range processOf(others, apart.Process.Pid, podsync) {
				if h := health[name]; h.PID != pid || h.State == topic.Stopped {
					missing = append(missing, fmt.Sprintf("%s of process %d: %+v", name, pid, h))
				}
			}
		}
	}
	said(first.Process.Pid)

	if err := first.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); first.ProcessState.ExitCode() != 2 {
		t.Errorf("the group ended with %v, want as after a panic", err)
	}
	if err := os.RemoveAll(filepath.Join(run, "bus")); err != nil {
		t.Fatal(err)
	}
	said(start(t, bed, "again", busGroup...).Process.Pid)
}

// processOf are the daemons and the processes in which they run.
func processOf(others []string, apart, podsync int) map[string]int {
	processes := map[string]int{"podsync": podsync}
	for _, name := range others {
		processes[name] = apart
	}
	return processes
}
