package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel's own lines: the first was recorded from Linux 6.18, the others follow mm/oom_kill.c of their versions.
const (
	memcg = `python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
Tasks state (memory values in pages):
[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[  10030]     0 10030    55342     6647     4992     1655         0   102400        0             0 python3
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubelot-stats-oom,task_memcg=/kubelot-stats-oom,task=python3,pid=10030,uid=0
Memory cgroup out of memory: Killed process 10030 (python3) total-vm:221368kB, anon-rss:19968kB, file-rss:6620kB, shmem-rss:0kB, UID:0 pgtables:100kB oom_score_adj:0`
	global = `a, b invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/hog.service,task=a, b,pid=77,uid=1000
Out of memory: Killed process 77 (a, b) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:1000 pgtables:1kB oom_score_adj:0`
	old = `hog invoked oom-killer: gfp_mask=0x1, order=0
Task in /kubepods/burstable/pod1/abc killed as a result of limit of /kubepods/burstable/pod1
Memory cgroup out of memory: Killed process 5 (hog) total-vm:1kB`
)

func TestParser(t *testing.T) {
	for name, c := range map[string]struct {
		lines  string
		want   []Kill
		system bool
	}{
		"of a cgroup": {memcg, []Kill{{
			"CONSTRAINT_MEMCG", "/kubelot-stats-oom", "/kubelot-stats-oom",
			"python3", 10030, false,
		}}, false},
		"of the machine": {global, []Kill{{
			"CONSTRAINT_NONE", "/", "/system.slice/hog.service",
			"a, b", 77, false,
		}}, true},
		"before Linux 5.0": {old, []Kill{{
			"", "/kubepods/burstable/pod1", "/kubepods/burstable/pod1/abc",
			"hog", 5, false,
		}}, false},
		"before Linux 5.0, of the machine": {
			"hog invoked oom-killer: x\nOut of memory: Killed process 5 (hog)",
			[]Kill{{"", "/", "/", "hog", 5, false}},
			true,
		},
		"nothing of the kind": {
			"eth0: link up\nKilled process 5 (hog)\noom-kill:constraint=x,pid=y", nil,
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p Parser
			var got []Kill
			for line := range strings.SplitSeq(c.lines, "\n") {
				if k, ok := p.Line(line); ok {
					got = append(got, k)
				}
			}
			if len(got) != len(c.want) || len(got) > 0 && (got[0] != c.want[0] || got[0].System() != c.system) {
				t.Errorf("kills %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestMessage(t *testing.T) {
	if got := message("6,153652,12507407046,-;oom-kill:x;y\n SUBSYSTEM=memory\n"); got != "oom-kill:x;y" {
		t.Errorf("message %q", got)
	}
}

// A log that isn't there, or may not be read, is an error at once.
func TestFollowWithoutALog(t *testing.T) {
	if err := Follow(t.Context(), filepath.Join(t.TempDir(), "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// A kill from before the start is found too, and is known as one.
func TestFollowReadsWhatThereIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(name string) {
		if _, err := fmt.Fprintf(log, "6,1,1,-;oom-kill:constraint=CONSTRAINT_NONE,global_oom,task_memcg=/,task=%s,"+
			"pid=1,uid=0", name); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	ctx, cancel := context.WithCancel(t.Context())
	found, done := make(chan Kill), make(chan error, 1)
	go func() { done <- Follow(ctx, path, func(k Kill) { found <- k }) }()
	if k := <-found; k.Process != "before" || !k.Earlier {
		t.Errorf("%+v", k)
	}
	for { // until the log was found to be empty
		write("after")
		if k := <-found; !k.Earlier {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	if _, err := os.Stat("/dev/kmsg"); err != nil {
		t.Skip("this machine has no kernel log")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Follow(ctx, "/dev/kmsg", func(Kill) {}) }()
	cancel()
	if err := <-done; err != nil && !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

func FuzzLine(f *testing.F) {
	for _, lines := range []string{memcg, global, old} {
		f.Add(lines)
	}
	f.Fuzz(func(t *testing.T, lines string) {
		var p Parser
		for line := range strings.SplitSeq(lines, "\n") {
			if k, ok := p.Line(message(line)); ok && k.PID < 0 {
				t.Errorf("%q gave %+v", line, k)
			}
		}
	})
}

// A process can give itself any name of up to 15 bytes. It doesn't change which cgroup the kill is counted for.
func FuzzProcessName(f *testing.F) {
	for _, name := range []string{
		"stress", "a,task=b", "x,pid=1,uid=0", ",task=,pid=1", "oom_memcg=/a,",
		"global_oom,", "(a) b", "",
	} {
		f.Add(name, 4711)
	}
	f.Fuzz(func(t *testing.T, name string, pid int) {
		if len(name) > 15 || pid < 0 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Skip("the kernel writes no such name")
		}
		const cgroup, limited = "/kubepods/burstable/pod1/0af9", "/kubepods/burstable/pod1"
		line := fmt.Sprintf("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=0af9,mems_allowed=0,"+
			"oom_memcg=%s,task_memcg=%s,task=%s,pid=%d,uid=0",
			limited, cgroup, name, pid)
		want := Kill{Constraint: "CONSTRAINT_MEMCG", LimitedCgroup: limited, Cgroup: cgroup, Process: name, PID: pid}
		if k, ok := new(Parser).Line(line); !ok || k != want {
			t.Errorf("%q gave %+v, %v; want %+v", line, k, ok, want)
		}
	})
}
