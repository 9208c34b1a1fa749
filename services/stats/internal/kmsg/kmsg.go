// Package kmsg finds the kernel's out-of-memory kills in its log. It is written by hand because euank/go-kmsg-parser,
// which cadvisor's parser of kills builds on, stops at the first record that was overwritten (docs/adr/0024).
//
// # Guarantees
//
//   - Parsing is a pure function of the lines. Garbage gives no kill and no error.
//   - Reading begins with the oldest record that the kernel still has, ends with its context, and goes on after records
//     that were overwritten.
package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Kill is one process that the kernel killed because memory was short.
type Kill struct {
	// Constraint is the kernel's, such as CONSTRAINT_NONE (the machine was short) or CONSTRAINT_MEMCG (a cgroup was).
	Constraint string
	// LimitedCgroup is the cgroup whose limit was reached, "/" for the machine; Cgroup the one that the process was in.
	LimitedCgroup, Cgroup string
	Process               string
	PID                   int
	// Earlier is true of a kill from before Follow, which another process may have seen.
	Earlier bool
}

// System reports whether the machine ran out of memory, and not a cgroup. Like the kubelet, it goes by the cgroup whose
// limit was reached.
func (k Kill) System() bool { return k.LimitedCgroup == "/" }

// Parser joins the lines of one kill. The zero value is ready.
type Parser struct{ pending *Kill }

// The expressions are compiled when they are first needed: on most nodes never.
var (
	// Linux 5.0 and later have everything in one line.
	summary = compiled(
		`^oom-kill:constraint=([^,]*),.*?(?:oom_memcg=([^,]*),|global_oom,)(?:.*?)task_memcg=(.*?),task=(.*),pid=(\d+),uid=\d+$`)
	// Before, the cgroups and the process had a line each.
	legacyCgroups = compiled(`^Task in (\S+) killed as a result of limit of (\S+)$`)
	legacyProcess = compiled(`Killed process (\d+) \((.+?)\)`)
)

func compiled(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

// summarized returns the submatches of a line that has everything, and nil for other lines.
func summarized(line string) []string {
	if !strings.HasPrefix(line, "oom-kill:") {
		return nil
	}
	return summary().FindStringSubmatch(line)
}

// Line takes the next line of the log. It returns the kill that the line completes, if any.
func (p *Parser) Line(line string) (Kill, bool) {
	if m := summarized(line); m != nil {
		p.pending = nil
		pid, err := strconv.Atoi(m[5])
		kill := Kill{Constraint: m[1], LimitedCgroup: m[2], Cgroup: m[3], Process: m[4], PID: pid}
		if kill.LimitedCgroup == "" {
			kill.LimitedCgroup = "/"
		}
		return kill, err == nil
	}
	if strings.Contains(line, "invoked oom-killer:") {
		p.pending = &Kill{LimitedCgroup: "/", Cgroup: "/"}
		return Kill{}, false
	}
	if p.pending == nil {
		return Kill{}, false
	}
	if m := legacyCgroups().FindStringSubmatch(line); m != nil {
		p.pending.Cgroup, p.pending.LimitedCgroup = m[1], m[2]
	} else if m := legacyProcess().FindStringSubmatch(line); m != nil {
		kill := *p.pending
		p.pending = nil
		var err error
		kill.PID, err = strconv.Atoi(m[1])
		kill.Process = m[2]
		return kill, err == nil
	}
	return Kill{}, false
}

// maxRecord is the largest record that the kernel returns, in bytes (CONSOLE_EXT_LOG_MAX).
const maxRecord = 8192

// Follow calls found for every kill that is in the log, and for every one from now on, until ctx ends, which is no
// error.
func Follow(ctx context.Context, path string, found func(Kill)) error {
	// Without blocking, the runtime's poller waits for records, so that closing the file ends a read.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	var parser Parser
	read := func(earlier bool, from func([]byte) (int, error)) error {
		buf := make([]byte, maxRecord)
		for ctx.Err() == nil {
			n, err := from(buf)
			switch {
			case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EINTR):
				// Records were overwritten before they were read, or one is too large. The next read returns a later one.
				continue
			case err != nil:
				return err
			}
			if kill, ok := parser.Line(message(string(buf[:n]))); ok {
				kill.Earlier = earlier
				found(kill)
			}
		}
		return nil
	}
	err = read(true, func(buf []byte) (int, error) { return unix.Read(fd, buf) })
	if errors.Is(err, unix.EAGAIN) { // there are no more
		defer context.AfterFunc(ctx, func() { file.Close() })()
		err = read(false, file.Read)
	}
	if err == nil || ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("read the kernel's log: %w", err)
}

// message is the text of a record: "6,1234,5678901,-;text" and lines of continuation, which begin with a space.
func message(record string) string {
	_, text, _ := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	return text
}
