package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kubelot.dev/daemon/disk"
)

// logLines bounds each log. The journal gives the newest lines.
const logLines = 20000

// logs are the journal's, of kubelot, of the container runtime and of the kernel.
func (n Node) logs() []Part {
	since := fmt.Sprintf("--since=-%ds", int(n.Since.Seconds()))
	journal := func(args ...string) func(context.Context, io.Writer) error {
		args = append([]string{"--no-pager", "--output=short-iso-precise", since, fmt.Sprintf("--lines=%d", logLines)},
			args...)
		return func(ctx context.Context, out io.Writer) error { return n.Journal(ctx, out, args...) }
	}
	return []Part{
		{
			Name:  "logs/kubelot.log",
			Write: journal("--unit=kubelot-*", "--unit=kubelot.target", "--unit=kubelet"), Keep: keepEnd,
		},
		{Name: "logs/runtime.log", Write: journal("--unit=containerd", "--unit=crio"), Keep: keepEnd},
		{Name: "logs/kernel.log", Write: journal("--dmesg"), Keep: keepEnd},
	}
}

// Journal runs journalctl where systemd runs.
func Journal(ctx context.Context, out io.Writer, args ...string) error {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return errors.New("there is no systemd here, whose journal has the logs")
	}
	var trouble bytes.Buffer
	command := exec.CommandContext(ctx, "journalctl", args...)
	command.Stdout, command.Stderr = out, &trouble
	command.WaitDelay = time.Second
	if err := command.Run(); err != nil {
		return fmt.Errorf("journalctl: %w: %s", err, bytes.TrimSpace(trouble.Bytes()))
	}
	return nil
}

// disks measures the filesystems of the node's directories.
func (n Node) disks(_ context.Context, out io.Writer) error {
	filesystems := map[string]disk.Filesystem{}
	var errs []error
	for _, dir := range n.Disks {
		filesystem, err := disk.Stat(dir)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		filesystems[dir] = filesystem
	}
	return errors.Join(append(errs, writeJSON(out, filesystems))...)
}

// cgroupFiles are what the table of cgroups has of each: version 2 first, then version 1.
var cgroupFiles = []string{
	"memory.current", "memory.max", "memory.high", "memory.peak", "memory.swap.current", "memory.events",
	"cpu.max", "cpu.weight", "cpu.stat", "pids.current", "pids.max", "cpuset.cpus", "cgroup.freeze", "io.max",
	"memory.usage_in_bytes", "memory.limit_in_bytes", "memory.failcnt", "cpu.shares", "cpu.cfs_quota_us",
}

// ofNode are the beginnings of the names of cgroups below which everything is in the table.
var ofNode = []string{"kubepods", "kubelot", "kubelet"}

// cgroups is the table of the pods' cgroups and of kubelot's own: a line for each, with its values.
func (n Node) cgroups(ctx context.Context, out io.Writer) error {
	found := false
	err := filepath.WalkDir(n.Cgroups, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went meanwhile
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !entry.IsDir() || !isOfNode(strings.TrimPrefix(path, n.Cgroups)):
			return nil
		}
		found = true
		_, err = fmt.Fprintln(out, cgroupLine(path))
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("no cgroup below %s is the pods' or kubelot's", n.Cgroups)
	}
	return err
}

func isOfNode(path string) bool {
	for name := range strings.SplitSeq(path, "/") {
		for _, prefix := range ofNode {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
	}
	return false
}

// cgroupLine is a cgroup with those of its values that it has.
func cgroupLine(dir string) string {
	line := dir
	for _, name := range cgroupFiles {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue // which files there are depends on the version and the controllers
		}
		line += fmt.Sprintf(" %s=%s", name, strings.Join(strings.Fields(string(text)), ","))
	}
	return line
}
