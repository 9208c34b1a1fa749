package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/tap"
	"kubelot.dev/cli/recording"
)

// Node is where the parts come from.
type Node struct {
	Version string
	// Since is how far back logs and history go.
	Since time.Duration
	// RunDir has the sockets of the daemons' metrics.
	RunDir string
	// Disks are directories whose filesystems are measured.
	Disks []string
	// Proc, Cgroups and Etc are where /proc, /sys/fs/cgroup and /etc are.
	Proc, Cgroups, Etc string
	// Crew are the daemons that run.
	Crew []settings.Daemon
	// Config is the configuration, without secrets.
	Config settings.Report
	// Settings are those that decisions depend on, for the check of the history.
	Settings map[string]any
	// Bus is nil where it can't be reached, and NoBus says why.
	Bus   *bus.Conn
	NoBus error
	// Doctor and Runtime write what kubelot doctor and the container runtime say.
	Doctor, Runtime func(ctx context.Context, out io.Writer) error
	// Journal runs journalctl.
	Journal func(ctx context.Context, out io.Writer, args ...string) error
}

// kernelFiles are files of the archive that are as the kernel shows them: the name, and the path below /proc.
var kernelFiles = [][2]string{
	{"mounts.txt", "1/mountinfo"},
	{"memory.txt", "meminfo"},
	{"load.txt", "loadavg"},
	{"swap.txt", "swaps"},
	{"pressure/cpu.txt", "pressure/cpu"},
	{"pressure/memory.txt", "pressure/memory"},
	{"pressure/io.txt", "pressure/io"},
}

// Parts are the files of the archive, those that matter most first.
func Parts(n Node) []Part {
	parts := []Part{
		{Name: "versions.json", Write: n.versions},
		{Name: "doctor.txt", Write: n.Doctor},
		{Name: "config.json", Write: func(_ context.Context, out io.Writer) error { return writeJSON(out, n.Config) }},
		{Name: "processes.txt", Write: n.processes},
		{Name: "health.json", Write: n.health},
		{Name: "pods.json", Write: n.pods},
		{Name: "runtime.json", Write: n.Runtime},
		{Name: "bus/history.jsonl", Write: n.history, Keep: keepRecording},
	}
	parts = append(parts, n.metrics()...)
	parts = append(parts, n.logs()...)
	parts = append(parts, Part{Name: "disks.json", Write: n.disks}, Part{Name: "cgroups.txt", Write: n.cgroups})
	for _, file := range kernelFiles {
		parts = append(parts, Part{Name: file[0], Write: copyOf(filepath.Join(n.Proc, file[1]))})
	}
	return parts
}

func writeJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// copyOf writes a file.
func copyOf(path string) func(context.Context, io.Writer) error {
	return func(_ context.Context, out io.Writer) error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(out, file)
		return err
	}
}

// versions says what runs here. Without the bus it lacks the daemons'.
func (n Node) versions(ctx context.Context, out io.Writer) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("kernel: %w", err)
	}
	versions := struct {
		Kubelot string            `json:"kubelot"`
		Go      string            `json:"go"`
		Arch    string            `json:"arch"`
		CPUs    int               `json:"cpus"`
		Kernel  string            `json:"kernel"`
		OS      string            `json:"os"`
		Daemons map[string]string `json:"daemons,omitempty"`
	}{
		Kubelot: n.Version, Go: runtime.Version(), Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
		Kernel: unix.ByteSliceToString(name.Release[:]), OS: osName(n.Etc), Daemons: map[string]string{},
	}
	healths, err := n.healths(ctx)
	for daemon, health := range healths {
		versions.Daemons[daemon] = health.Version
	}
	return errors.Join(writeJSON(out, versions), err)
}

// osName is the name of the operating system; empty where it has none.
func osName(etc string) string {
	text, err := os.ReadFile(filepath.Join(etc, "os-release"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			return strings.Trim(name, `"'`)
		}
	}
	return ""
}

func (n Node) healths(ctx context.Context) (map[string]topic.DaemonHealth, error) {
	if n.Bus == nil {
		return nil, n.NoBus
	}
	return topic.Health.Read(ctx, n.Bus)
}

func (n Node) health(ctx context.Context, out io.Writer) error {
	healths, err := n.healths(ctx)
	if err != nil {
		return err
	}
	return writeJSON(out, healths)
}

func (n Node) pods(ctx context.Context, out io.Writer) error {
	if n.Bus == nil {
		return n.NoBus
	}
	state, err := pods.Read(ctx, n.Bus)
	if err != nil {
		return err
	}
	return writeJSON(out, pods.Build(state))
}

// history is a recording for kubelot replay.
func (n Node) history(ctx context.Context, out io.Writer) error {
	if n.Bus == nil {
		return n.NoBus
	}
	now := time.Now()
	return tap.Collect(ctx, n.Bus.Transport(), recording.Header{
		Created: now, From: now.Add(-n.Since), Kubelot: n.Version, Settings: n.Settings,
	}, out)
}

// processes are the daemons that run, with what the kernel says of them.
func (n Node) processes(_ context.Context, out io.Writer) error {
	if len(n.Crew) == 0 {
		return fmt.Errorf("no daemon runs with the run directory %s", n.RunDir)
	}
	byPID := map[int][]string{}
	for _, d := range n.Crew {
		byPID[d.PID] = append(byPID[d.PID], d.Name)
	}
	var errs []error
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		if _, err := fmt.Fprintf(out, "# %s\n", strings.Join(byPID[pid], ", ")); err != nil {
			return err
		}
		for _, file := range []string{"status", "cgroup", "limits"} {
			text, err := os.ReadFile(filepath.Join(n.Proc, fmt.Sprint(pid), file))
			if err == nil {
				_, err = out.Write(text)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// metrics are those of each daemon that serves some.
func (n Node) metrics() []Part {
	sockets, err := filepath.Glob(filepath.Join(n.RunDir, "metrics", "*.sock"))
	if err != nil || len(sockets) == 0 {
		return []Part{{Name: "metrics", Write: func(context.Context, io.Writer) error {
			return fmt.Errorf("no daemon has a socket in %s", filepath.Join(n.RunDir, "metrics"))
		}}}
	}
	var parts []Part
	for _, socket := range sockets {
		name := "metrics/" + strings.TrimSuffix(filepath.Base(socket), ".sock") + ".prom"
		parts = append(parts, Part{Name: name, Write: func(ctx context.Context, out io.Writer) error {
			return scrape(ctx, socket, out)
		}})
	}
	return parts
}

func scrape(ctx context.Context, socket string, out io.Writer) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/metrics", http.NoBody)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the daemon answers %s", answer.Status)
	}
	_, err = io.Copy(out, answer.Body)
	return err
}
