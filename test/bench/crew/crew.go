// Package crew reads what kubelot's processes and its bus hold at one moment: memory, CPU time, descriptors,
// goroutines, files, and the messages that the bus keeps.
//
// Reads: /proc, the run and root directories, the daemons' metrics sockets, the bus. Writes, owns: nothing.
//
// Guarantees: private memory and PSS are read before anything is asked of a process; what a process doesn't tell is
// missing from the reading and not zero.
package crew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"kubelot.dev/test/bench/measure"
)

// Crew is where a running crew is.
type Crew struct {
	PID     int // of its supervisor, kubelot up
	RunDir  string
	RootDir string
}

// Process is one daemon at a moment, or "up", the supervisor. Sizes are in bytes. The programs that a daemon runs, such
// as mount, are a part of it: to the kernel, what they have taken of CPU time and bytes is the daemon's when they have
// ended.
type Process struct {
	measure.Process
	CPU time.Duration `json:"cpu"` // so far, nanoseconds
	// Read and Written are the bytes of all its read and write calls, so far: messages, files.
	Read    int64 `json:"read"`
	Written int64 `json:"written"`
	// Heap is what is in use after a collection, and Goroutines their number; nil of a process that doesn't tell.
	Heap       *int64 `json:"heap,omitempty"`
	Goroutines *int   `json:"goroutines,omitempty"`
}

// Reading is the crew at a moment.
type Reading struct {
	Time      time.Time `json:"time"`
	Processes []Process `json:"processes"`
	// Run is the run directory, whose bytes are memory too: it is a tmpfs. Root is the kubelet's root directory.
	Run  measure.Files `json:"run"`
	Root measure.Files `json:"root"`
	// Store is the bus's store, which is in the run directory.
	Store measure.Files `json:"store"`
	// Streams are what the bus keeps, by stream; none where it doesn't tell.
	Streams []Stream `json:"streams,omitempty"`
}

// Read reads all of it. Where it is to be known what a daemon's heap has in use, that daemon must run with
// --profiling: the heap is collected first.
func (c Crew) Read(ctx context.Context) (Reading, error) {
	r := Reading{Time: time.Now()}
	all, err := measure.Processes(c.PID)
	if err != nil {
		return r, fmt.Errorf("the crew's supervisor: %w", err)
	}
	if r.Processes, err = daemons(all); err != nil {
		return r, err
	}
	for _, files := range []struct {
		dir  string
		into *measure.Files
	}{{c.RunDir, &r.Run}, {c.RootDir, &r.Root}, {BusStore(c.RunDir), &r.Store}} {
		if *files.into, err = measure.Count(files.dir); err != nil {
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

// BusStore is the directory of the bus's store in a run directory.
func BusStore(runDir string) string { return filepath.Join(runDir, "bus") }

// Bus is the process that has the bus in it.
func (r Reading) Bus() (Process, error) {
	for _, p := range r.Processes {
		if p.Name == "bus" {
			return p, nil
		}
	}
	return Process{}, fmt.Errorf("no process kubelot-bus among %d", len(r.Processes))
}

// Restarted is an error that names the processes of an earlier reading that are other ones now, or aren't there. A
// daemon that sleeps keeps its process (docs/adr/0034).
func (r Reading) Restarted(before Reading) error {
	now := map[string]int{} // processes by name
	for _, p := range r.Processes {
		now[p.Name] = p.PID
	}
	var errs []error
	for _, p := range before.Processes {
		switch pid, there := now[p.Name]; {
		case !there:
			errs = append(errs, fmt.Errorf("kubelot-%s isn't there any more", p.Name))
		case pid != p.PID:
			errs = append(errs, fmt.Errorf("kubelot-%s was started again: its process was %d and is %d", p.Name, p.PID, pid))
		}
	}
	return errors.Join(errs...)
}

// PSS is that of all processes.
func (r Reading) PSS() int64 {
	sum := int64(0)
	for _, p := range r.Processes {
		sum += p.PSS
	}
	return sum
}

// daemons are the supervisor, which comes first, and its children, each with what it runs.
func daemons(all []measure.Process) ([]Process, error) {
	var found []Process
	of := map[int]int{} // where in found, by process
	for i, process := range all {
		p := Process{Process: process}
		if err := p.read(); measure.Ended(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("process %d, kubelot-%s: %w", p.PID, p.Name, err)
		}
		daemon, runs := of[p.Parent]
		switch {
		case i == 0 || p.Parent == all[0].PID:
			of[p.PID] = len(found)
			found = append(found, p)
		case runs:
			of[p.PID] = daemon
			found[daemon].add(p)
		}
	}
	return found, nil
}

// add takes in what a program has that the daemon runs.
func (p *Process) add(program Process) {
	p.PSS += program.PSS
	p.Private += program.Private
	p.Descriptors += program.Descriptors
	p.CPU += program.CPU
	p.Read += program.Read
	p.Written += program.Written
}

// read is what else /proc tells of the process.
func (p *Process) read() (err error) {
	if p.CPU, err = measure.CPUOf(p.PID); err != nil {
		return err
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.PID))
	if err != nil {
		return err
	}
	_, err = fmt.Sscanf(string(data), "rchar: %d\nwchar: %d\n", &p.Read, &p.Written)
	return err
}
