package signal

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/services/gc/internal/evict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tree writes files below a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var proc = map[string]string{
	"proc/meminfo": "MemTotal:        2000000 kB\nMemFree:          500000 kB\nBuffers: 5 kB\n",
	"proc/loadavg": "1.36 3.49 4.53 2/3518 3715089\n", "proc/sys/kernel/pid_max": "4194304\n",
	"proc/sys/kernel/threads-max": "30000\n",
}

func with(more map[string]string) map[string]string {
	all := map[string]string{}
	for _, m := range []map[string]string{proc, more} {
		for name, text := range m {
			all[name] = text
		}
	}
	return all
}

func reader(t *testing.T, root string) *Reader {
	t.Helper()
	r, err := New(root, "cgroupfs", "/")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// all reads all signals.
func all(r *Reader, now time.Time, paths Filesystems) (evict.Observations, error) {
	obs, err := r.Read(now)
	disks, errDisks := r.Disks(now, paths)
	maps.Copy(obs, disks)
	return obs, errors.Join(err, errDisks)
}

func TestRead(t *testing.T) {
	v1 := with(map[string]string{
		"sys/fs/cgroup/memory/memory.usage_in_bytes":          "1500000000\n",
		"sys/fs/cgroup/memory/memory.stat":                    "inactive_file 5\ntotal_inactive_file 300000000\n",
		"sys/fs/cgroup/memory/kubepods/memory.usage_in_bytes": "700000000\n",
		"sys/fs/cgroup/memory/kubepods/memory.stat":           "total_inactive_file 100000000\n",
		"sys/fs/cgroup/memory/kubepods/memory.limit_in_bytes": "1000000000\n",
	})
	v2 := with(map[string]string{
		"sys/fs/cgroup/cgroup.controllers": "memory\n",
		"sys/fs/cgroup/memory.stat": "anon 900000000\nfile 600000000\nkernel 250000000\ninactive_file " +
			"300000000\n",
		"sys/fs/cgroup/kubepods/memory.current": "700000000\n",
		"sys/fs/cgroup/kubepods/memory.stat":    "inactive_file 100000000\n",
		"sys/fs/cgroup/kubepods/memory.max":     "1000000000\n",
	})
	const total = 2000000 << 10
	for name, c := range map[string]struct {
		files     map[string]string
		available int64
	}{
		"v1": {v1, total - 1200000000},
		"v2": {v2, total - 1200000000},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			obs, err := all(reader(t, tree(t, c.files)), now, Filesystems{Node: t.TempDir(), Image: "/proc"})
			if err != nil {
				t.Fatal(err)
			}
			for signal, want := range map[evict.Signal]evict.Observation{
				evict.MemoryAvailable:      {Available: c.available, Capacity: total, At: now},
				evict.AllocatableAvailable: {Available: 400000000, Capacity: 1000000000, At: now},
				evict.PIDAvailable:         {Available: 30000 - 3518, Capacity: 30000, At: now},
			} {
				if got := obs[signal]; got != want {
					t.Errorf("%s is %+v, want %+v", signal, got, want)
				}
			}
			if o := obs[evict.NodeFSAvailable]; o.Available <= 0 || o.Capacity < o.Available {
				t.Errorf("nodefs is %+v", o)
			}
			if _, known := obs[evict.ImageFSInodes]; known {
				t.Error("a filesystem without inodes has some")
			}
		})
	}
}

// What can't be read is named, and the rest is there.
func TestUnreadable(t *testing.T) {
	for name, c := range map[string]struct {
		change  map[string]string
		missing evict.Signal
		want    string
	}{
		"no limit": {
			map[string]string{"sys/fs/cgroup/kubepods/memory.max": "max\n"},
			evict.AllocatableAvailable, "",
		},
		"no pods yet": {nil, evict.AllocatableAvailable, ""},
		"limit is nonsense": {
			map[string]string{"sys/fs/cgroup/kubepods/memory.max": "much\n"},
			evict.AllocatableAvailable,
			`memory.max is "much"`,
		},
		"no statistics": {
			map[string]string{"sys/fs/cgroup/memory.stat": "anon 1\nfile 2\n"},
			evict.MemoryAvailable,
			"no inactive_file",
		},
		"bad statistics": {
			map[string]string{"sys/fs/cgroup/memory.stat": "anon 1\nfile 2\ninactive_file x\n"},
			evict.MemoryAvailable, `inactive_file is "x"`,
		},
		"bad meminfo": {map[string]string{"proc/meminfo": "\n"}, evict.MemoryAvailable, "no MemTotal:"},
		"bad loadavg": {map[string]string{"proc/loadavg": "1 2 3\n"}, evict.PIDAvailable, "no number of tasks"},
	} {
		t.Run(name, func(t *testing.T) {
			files := with(map[string]string{
				"sys/fs/cgroup/cgroup.controllers": "memory\n",
				"sys/fs/cgroup/memory.stat":        "anon 1\nfile 300000000\ninactive_file 300000000\n",
			})
			for name, text := range c.change {
				files[name] = text
			}
			obs, err := all(reader(t, tree(t, files)), time.Now(), Filesystems{Node: "/"})
			if _, known := obs[c.missing]; known {
				t.Errorf("%s is known", c.missing)
			}
			if _, known := obs[evict.NodeFSAvailable]; !known {
				t.Error("nodefs is missing too")
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	obs, err := all(reader(t, t.TempDir()), time.Now(), Filesystems{Image: "/absent"})
	if len(obs) != 0 || err == nil {
		t.Errorf("of nothing: %v, %v", obs, err)
	}
}

func TestThisMachine(t *testing.T) {
	r, err := New("/", "cgroupfs", "/no-pods")
	if err != nil {
		t.Fatal(err)
	}
	obs, err := all(r, time.Now(), Filesystems{Node: "/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, signal := range []evict.Signal{evict.MemoryAvailable, evict.PIDAvailable, evict.NodeFSAvailable} {
		if o := obs[signal]; o.Available <= 0 || o.Available > o.Capacity {
			t.Errorf("%s is %+v", signal, o)
		}
	}
}

func TestLayout(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		paths Filesystems
		want  evict.Layout
		split bool
	}{
		"one": {Filesystems{dir, dir, dir}, evict.Layout{}, false},
		"one, the root directory still to be made": {Filesystems{dir + "/later", dir, dir}, evict.Layout{}, false},
		"two": {Filesystems{dir, "/proc", "/proc"}, evict.Layout{ImageFS: true}, false},
		"containers apart from images": {
			Filesystems{dir, "/proc", dir},
			evict.Layout{ImageFS: true, ContainerFS: true},
			false,
		},
		"split": {
			Filesystems{dir, "/proc", "/sys"},
			evict.Layout{ImageFS: true, ContainerFS: true},
			true,
		},
	} {
		if got, split, err := Layout(c.paths); err != nil || got != c.want || split != c.split {
			t.Errorf("%s: %+v, split %v, %v", name, got, split, err)
		}
	}
	if _, _, err := Layout(Filesystems{dir, "/absent", dir}); err == nil {
		t.Error("no error")
	}
}

// Reading is done all the time, so it must cost next to nothing.
func BenchmarkRead(b *testing.B) {
	r, err := New("/", "cgroupfs", "/no-pods")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := all(r, time.Now(), Filesystems{Node: "/", Image: "/tmp"}); err != nil {
			b.Fatal(err)
		}
	}
}
