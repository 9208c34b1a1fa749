package measure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Process is what one process of an agent holds. Sizes are in bytes.
type Process struct {
	// Name is the daemon's ("bus"), "up" for the supervisor, "3 daemons" for a group in one process, or else the
	// program's.
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	Parent int    `json:"-"`
	// PSS is the proportional set size: a page that several processes share counts in parts.
	PSS int64 `json:"pss"`
	// Private is what the process alone has written to: heap, stacks, data. Pages that it has only read, such as those
	// of its executable, are no part of it: the kernel can drop them.
	Private     int64 `json:"private"`
	Descriptors int   `json:"descriptors"`
}

// Processes are a process and its descendants, parents before their children.
func Processes(root int) ([]Process, error) { return processes(root, tree(root), look) }

// processes looks at each of the processes, of which the first is the root.
func processes(root int, pids []int, look func(pid int) (Process, error)) ([]Process, error) {
	var all []Process
	for _, pid := range pids {
		p, err := look(pid)
		switch {
		case Ended(err), err == nil && p.PSS == 0: // what has ended and was not yet reaped has no memory
			continue
		case err != nil:
			return nil, err
		}
		all = append(all, p)
	}
	if len(all) == 0 || all[0].PID != root {
		return nil, fmt.Errorf("process %d is gone", root)
	}
	return all, nil
}

// Ended reports whether the error, of a file of a process, says that the process has ended.
func Ended(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func look(pid int) (Process, error) {
	p := Process{PID: pid}
	stat, err := statFields(pid)
	if err != nil {
		return p, err
	}
	if p.Parent, err = strconv.Atoi(stat[1]); err != nil {
		return p, fmt.Errorf("parent of process %d: %w", pid, err)
	}
	dir := fmt.Sprintf("/proc/%d", pid)
	command, err := os.ReadFile(dir + "/cmdline")
	if err != nil {
		return p, err
	}
	p.Name = nameOf(strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00"))
	rollup, err := os.ReadFile(dir + "/smaps_rollup")
	if err != nil {
		return p, err
	}
	if p.PSS, p.Private, err = parseRollup(rollup); err != nil {
		return p, fmt.Errorf("memory of process %d: %w", pid, err)
	}
	files, err := os.ReadDir(dir + "/fd")
	p.Descriptors = len(files)
	return p, err
}

// nameOf finds the name that people know a process by.
func nameOf(args []string) string {
	name := filepath.Base(args[0])
	if (name == "kubelot" || name == "kubelot-all" || name == "kubelot-compact") && len(args) > 1 {
		args = args[1:]
		name = args[0]
		if name == "run" && len(args) > 1 {
			name = fmt.Sprintf("%d daemons", 1+strings.Count(args[1], ","))
		}
	}
	return strings.TrimPrefix(name, "kubelot-")
}

// parseRollup reads smaps_rollup: PSS, and the pages that only this process has and has changed.
func parseRollup(data []byte) (pss, private int64, err error) {
	wanted := map[string]*int64{"Pss:": &pss, "Private_Dirty:": &private}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || wanted[fields[0]] == nil {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("line %q: %w", line, err)
		}
		*wanted[fields[0]] = kib << 10
	}
	return pss, private, nil
}

// PSS is the proportional set size of a process and its descendants in bytes: pages they share count once.
func PSS(root int) (int64, error) {
	all, err := Processes(root)
	var total int64
	for _, p := range all {
		total += p.PSS
	}
	return total, err
}

// Store is the memory in bytes that the tmpfs mounted on dir takes: also of files that are open and have no name.
func Store(dir string) (int64, error) {
	var info syscall.Statfs_t
	if err := syscall.Statfs(dir, &info); err != nil {
		return 0, fmt.Errorf("space taken in %s: %w", dir, err)
	}
	return int64(info.Blocks-info.Bfree) * info.Bsize, nil
}

// Metric reads one value without labels, such as go_goroutines, from a daemon's metrics socket.
func Metric(ctx context.Context, socket, name string) (float64, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://daemon/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, fmt.Errorf("read the metrics at %s: %w", socket, err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte(name+" ")); ok {
			return strconv.ParseFloat(string(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s at %s: %w", name, socket, lines.Err())
}
