package feed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/pulls"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/disk"
)

const (
	// configEvery is how often the configuration and systemd's counts are read, which cost more than /proc.
	configEvery = 30 * time.Second
	// patience bounds each call of another program.
	patience = 2 * time.Second
	// defaultEvery is the pause between two readings where none is given.
	defaultEvery = 2 * time.Second
)

// reader reads the daemons' processes and the machine.
type reader struct {
	proc, runDir string

	// The rest is read each configEvery.
	readAt     time.Time
	restarts   map[string]int
	thresholds []live.Threshold
	dirs       []dir
	// endpoint is the container runtime's.
	endpoint string
}

// dir is a directory whose filesystem is measured.
type dir struct{ role, path string }

func newReader(proc, runDir string) *reader { return &reader{proc: proc, runDir: runDir} }

func (r *reader) run(ctx context.Context, every time.Duration, inputs chan<- live.Input) {
	if every <= 0 {
		every = defaultEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		in := r.read(ctx, time.Now())
		select {
		case inputs <- in:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *reader) read(ctx context.Context, now time.Time) live.Input {
	var in live.Input
	crew, err := settings.Crew(r.proc, r.runDir)
	if err != nil {
		return in // such as on a machine that doesn't show its processes
	}
	if now.Sub(r.readAt) >= configEvery || r.readAt.IsZero() {
		r.readAt, r.restarts = now, restarts(ctx)
		r.configuration(ctx, crew)
	}
	in, err = r.measure(crew, now)
	if err != nil {
		return live.Input{}
	}
	if r.endpoint != "" {
		// A runtime that doesn't tell leaves the progress of pulls out.
		in.Pulls, _ = pulls.Read(ctx, r.endpoint)
	}
	return in
}

// measure reads the processes of the crew and the machine.
func (r *reader) measure(crew []settings.Daemon, now time.Time) (live.Input, error) {
	fs, err := procfs.NewFS(r.proc)
	if err != nil {
		return live.Input{}, err
	}
	in := live.Input{Processes: processes(fs, crew, now), Machine: r.machine(fs, now)}
	for name, p := range in.Processes {
		p.Restarts = -1
		if n, counted := r.restarts[name]; counted {
			p.Restarts = n
		}
		in.Processes[name] = p
	}
	return in, nil
}

// processes reads the crew's processes. One that ends meanwhile is left out.
func processes(fs procfs.FS, crew []settings.Daemon, now time.Time) map[string]live.Process {
	shares := map[int][]string{}
	for _, d := range crew {
		shares[d.PID] = append(shares[d.PID], d.Name)
	}
	found := map[string]live.Process{}
	for _, d := range crew {
		proc, err := fs.Proc(d.PID)
		if err != nil {
			continue
		}
		stat, statErr := proc.Stat()
		status, err := proc.NewStatus()
		if err != nil || statErr != nil {
			continue
		}
		p := live.Process{
			At: now, PID: d.PID, CPU: time.Duration(stat.CPUTime() * float64(time.Second)),
			MemoryBytes: status.RssAnon + status.RssShmem,
		}
		if len(shares[d.PID]) > 1 {
			p.Shares = shares[d.PID]
		}
		found[d.Name] = p
	}
	return found
}

// machine reads the machine. What can't be read is left out.
func (r *reader) machine(fs procfs.FS, now time.Time) *live.Machine {
	m := &live.Machine{At: now, Thresholds: r.thresholds}
	if info, err := fs.Meminfo(); err == nil && info.MemTotalBytes != nil && info.MemFreeBytes != nil {
		m.MemoryBytes, m.AvailableBytes = *info.MemTotalBytes, *info.MemFreeBytes
		if info.InactiveFileBytes != nil {
			m.AvailableBytes += *info.InactiveFileBytes
		}
	}
	if load, err := fs.LoadAvg(); err == nil {
		m.Load = load.Load1
	}
	m.PIDs, m.PIDLimit = processIDs(r.proc)
	seen := map[uint64]bool{}
	for _, d := range r.dirs {
		size, err := disk.StatToBe(d.path)
		if err != nil || seen[size.Device] {
			continue
		}
		seen[size.Device] = true
		m.Disks = append(m.Disks, live.Disk{
			Role: d.role, Path: d.path, CapacityBytes: size.Capacity, AvailableBytes: size.Available, Inodes: size.Inodes,
			FreeInodes: size.InodesFree,
		})
	}
	return m
}

// configuration learns the thresholds and the directories from the daemons' configuration.
func (r *reader) configuration(ctx context.Context, crew []settings.Daemon) {
	if len(crew) == 0 {
		return
	}
	report := settings.Check(crew[0].Args)
	values := map[string]any{}
	for _, s := range report.Settings {
		values[strings.TrimLeft(s.Name, "-")] = s.Value
	}
	r.thresholds = nil
	for _, kind := range []struct {
		field string
		soft  bool
	}{{"evictionHard", false}, {"evictionSoft", true}} {
		limits, _ := values[kind.field].(map[string]any)
		for signal, value := range limits {
			r.thresholds = append(r.thresholds, live.Threshold{Signal: signal, Value: fmt.Sprint(value), Soft: kind.soft})
		}
	}
	root, _ := values["root-dir"].(string)
	if root == "" {
		root = config.RootDir
	}
	r.dirs = []dir{{"nodefs", root}}
	r.endpoint, _ = values["containerRuntimeEndpoint"].(string)
	if r.endpoint != "" {
		if path := imagesAt(ctx, r.endpoint); path != "" {
			r.dirs = append(r.dirs, dir{"imagefs", path})
		}
	}
}

// imagesAt is where the runtime has its images; empty where it doesn't say.
func imagesAt(ctx context.Context, endpoint string) string {
	client, err := cri.Dial(endpoint, cri.Options{Timeout: patience})
	if err != nil {
		return ""
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	info, err := client.ImageFsInfo(ctx)
	if err != nil || len(info.GetImageFilesystems()) == 0 {
		return ""
	}
	return info.GetImageFilesystems()[0].GetFsId().GetMountpoint()
}

// restarts are systemd's counts of restarts, by daemon; nil where systemd doesn't run the crew.
func restarts(ctx context.Context) map[string]int {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=Id,NRestarts", "kubelot-*.service").Output()
	if err != nil {
		return nil
	}
	return countsOf(out)
}

// countsOf reads the answer of systemctl show: blocks of lines, one for each unit.
func countsOf(out []byte) map[string]int {
	counts := map[string]int{}
	for block := range bytes.SplitSeq(out, []byte("\n\n")) {
		name, n := "", -1
		for line := range strings.Lines(string(block)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Id":
				name = strings.TrimSuffix(strings.TrimPrefix(value, "kubelot-"), ".service")
			case "NRestarts":
				if count, err := strconv.Atoi(value); err == nil {
					n = count
				}
			}
		}
		if name != "" && n >= 0 {
			counts[name] = n
		}
	}
	return counts
}

// processIDs are how many processes and threads there are, and how many there can be; zero where that can't be read.
func processIDs(proc string) (n, limit int64) {
	// The fourth field of loadavg is running/all of the scheduler's entities.
	fields := strings.Fields(text(filepath.Join(proc, "loadavg")))
	if len(fields) < 4 {
		return 0, 0
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0, 0
	}
	for _, file := range []string{"sys/kernel/pid_max", "sys/kernel/threads-max"} {
		most, err := strconv.ParseInt(strings.TrimSpace(text(filepath.Join(proc, file))), 10, 64)
		if err == nil && (limit == 0 || most < limit) {
			limit = most
		}
	}
	return n, limit
}

// text is a small file of the kernel; empty where it can't be read.
func text(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
