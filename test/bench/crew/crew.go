// Package crew reads what kubelot's processes and its bus hold at one moment: memory, CPU time, descriptors,
// goroutines, files, and the messages that the bus keeps.
//
// Reads: /proc, the run and root directories, the daemons' metrics sockets, the bus. Writes, owns: nothing.
//
// Guarantees: private memory and PSS are read before anything is asked of a process; what a process doesn't tell is
// missing from the reading and not zero.
package crew

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Crew is where a running crew is.
type Crew struct {
	PID     int // of its supervisor, kubelot up
	RunDir  string
	RootDir string
}

// Process is one process at a moment. Sizes are in bytes.
type Process struct {
	Name    string        `json:"name"` // the daemon's; "up" is the supervisor
	PID     int           `json:"pid"`
	Private int64         `json:"private"` // memory that no other process has
	PSS     int64         `json:"pss"`     // with its share of the pages that others have too
	CPU     time.Duration `json:"cpu"`     // so far, nanoseconds
	// Read and Written are the bytes of all its read and write calls, so far: messages, files.
	Read        int64 `json:"read"`
	Written     int64 `json:"written"`
	Descriptors int   `json:"descriptors"`
	// Heap is what is in use after a collection, and Goroutines their number; nil of a process that doesn't tell.
	Heap       *int64 `json:"heap,omitempty"`
	Goroutines *int   `json:"goroutines,omitempty"`
}

// Reading is the crew at a moment.
type Reading struct {
	Time      time.Time `json:"time"`
	Processes []Process `json:"processes"`
	// Run is the run directory, whose bytes are memory too: it is a tmpfs. Root is the kubelet's root directory.
	Run  Files `json:"run"`
	Root Files `json:"root"`
	// Store is the bus's store, which is in the run directory.
	Store Files `json:"store"`
	// Streams are what the bus keeps, by stream; none where it doesn't tell.
	Streams []Stream `json:"streams,omitempty"`
}

// Read reads all of it. Where it is to be known what a daemon's heap has in use, that daemon must run with
// --profiling: the heap is collected first.
func (c Crew) Read(ctx context.Context) (Reading, error) {
	r := Reading{Time: time.Now()}
	processes, err := c.processes()
	if err != nil {
		return r, err
	}
	for i := range processes {
		if err := processes[i].read(); err != nil {
			return r, fmt.Errorf("kubelot-%s: %w", processes[i].Name, err)
		}
	}
	r.Processes = processes
	for _, files := range []struct {
		dir  string
		into *Files
	}{{c.RunDir, &r.Run}, {c.RootDir, &r.Root}, {filepath.Join(c.RunDir, "bus"), &r.Store}} {
		if *files.into, err = count(files.dir); err != nil {
			return r, err
		}
	}
	if r.Streams, err = c.streams(ctx); err != nil {
		return r, err
	}
	for i := range r.Processes {
		if err := r.Processes[i].ask(ctx, c.RunDir); err != nil {
			return r, fmt.Errorf("ask kubelot-%s: %w", r.Processes[i].Name, err)
		}
	}
	return r, nil
}

// Bus is the process that has the bus in it.
func (r Reading) Bus() (Process, error) {
	for _, p := range r.Processes {
		if p.Name == "bus" {
			return p, nil
		}
	}
	return Process{}, fmt.Errorf("no process kubelot-bus among %d", len(r.Processes))
}

// PSS is that of all processes.
func (r Reading) PSS() int64 {
	sum := int64(0)
	for _, p := range r.Processes {
		sum += p.PSS
	}
	return sum
}

// CPU is that of all processes.
func (r Reading) CPU() time.Duration {
	sum := time.Duration(0)
	for _, p := range r.Processes {
		sum += p.CPU
	}
	return sum
}

// processes are the supervisor and its children.
func (c Crew) processes() ([]Process, error) {
	all := []Process{{Name: "up", PID: c.PID}}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", c.PID))
	if err != nil {
		return nil, err
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("the crew's supervisor, process %d, is gone", c.PID)
	}
	for _, path := range tasks {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that ended
		}
		for _, field := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("children of process %d: %w", c.PID, err)
			}
			cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			if err != nil {
				continue
			}
			program, _, _ := strings.Cut(string(cmdline), "\x00")
			all = append(all, Process{Name: strings.TrimPrefix(filepath.Base(program), "kubelot-"), PID: pid})
		}
	}
	return all, nil
}

// read is what /proc tells of the process.
func (p *Process) read() error {
	memory, err := numbers(p.PID, "smaps_rollup")
	if err != nil {
		return err
	}
	p.Private = (memory["Private_Clean"] + memory["Private_Dirty"]) << 10
	p.PSS = memory["Pss"] << 10
	if p.CPU, err = cpu(p.PID); err != nil {
		return err
	}
	io, err := numbers(p.PID, "io")
	if err != nil {
		return err
	}
	p.Read, p.Written = io["rchar"], io["wchar"]
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	p.Descriptors = len(descriptors)
	return err
}

// clockTick is the unit of CPU times in /proc on every Linux that Go runs on.
const clockTick = time.Second / 100

// cpu is the CPU time of a process and of the children that it has reaped, not of those that live: they are listed
// themselves.
func cpu(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command's name before the state may contain blanks and parentheses.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields after the name", pid, len(fields))
	}
	var ticks int64
	for _, field := range fields[11:15] { // utime, stime, cutime, cstime of proc(5)
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// numbers are the numbers of a file of /proc that has one after each name.
func numbers(pid int, file string) (map[string]int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, rest, found := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if !found || len(fields) == 0 {
			continue
		}
		if n, err := strconv.ParseInt(fields[0], 10, 64); err == nil {
			all[name] = n
		}
	}
	return all, nil
}
