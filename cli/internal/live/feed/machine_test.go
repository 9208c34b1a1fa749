package feed

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubelot.dev/cli/internal/settings"
)

// machine makes a /proc with two daemons in one process, one alone, and one whose process has just ended.
func machine(t *testing.T) string {
	t.Helper()
	proc := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(proc, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for pid, name := range map[string]string{"10": "kubelot-podsync", "20": "kubelot-compact"} {
		// utime and stime are the fields 14 and 15: 1.5 s and 0.5 s.
		write(pid+"/stat", pid+" ("+name+") S 1 1 1 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 9 0 6000 1000 500"+
			strings.Repeat(" 0", 28)+"\n")
		write(pid+"/status", "Name:\t"+name+"\nPid:\t"+pid+"\nRssAnon:\t    4096 kB\nRssShmem:\t    1024 kB\n")
	}
	write("meminfo", "MemTotal:  1000 kB\nMemFree:  300 kB\nInactive(file):  200 kB\n")
	write("loadavg", "0.42 0.30 0.20 2/345 6789\n")
	write("sys/kernel/pid_max", "4194304\n")
	write("sys/kernel/threads-max", "32768\n")
	return proc
}

func TestReadings(t *testing.T) {
	r := newReader(machine(t), t.TempDir())
	r.dirs = []dir{{"nodefs", t.TempDir()}, {"imagefs", t.TempDir()}}
	now := time.Unix(1000, 0)
	crew := []settings.Daemon{
		{Name: "podsync", PID: 10},
		{Name: "pleg", PID: 20},
		{Name: "gc", PID: 20},
		{Name: "api", PID: 30},
	}
	in, err := r.measure(crew, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Processes) != 3 {
		t.Errorf("%+v", in.Processes)
	}
	p := in.Processes["podsync"]
	if p.CPU != 2*time.Second || p.MemoryBytes != 5<<20 || p.PID != 10 || p.Shares != nil || p.Restarts != -1 {
		t.Errorf("podsync: %+v", p)
	}
	if p := in.Processes["gc"]; strings.Join(p.Shares, " ") != "pleg gc" {
		t.Errorf("gc shares its process with %v", p.Shares)
	}
	m := in.Machine
	if m.MemoryBytes != 1000<<10 || m.AvailableBytes != 500<<10 || m.Load != 0.42 || m.PIDs != 345 || m.PIDLimit != 32768 {
		t.Errorf("%+v", m)
	}
	if len(m.Disks) != 1 || m.Disks[0].Role != "nodefs" || m.Disks[0].CapacityBytes == 0 {
		t.Errorf("two directories of one filesystem are %+v", m.Disks)
	}
}

func TestCountsOf(t *testing.T) {
	got := countsOf([]byte("Id=kubelot-gc.service\nNRestarts=3\n\nNRestarts=0\nId=kubelot-pleg.service\n\nId=x.service\n" +
		"NRestarts=many\n"))
	if want := map[string]int{"gc": 3, "pleg": 0}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := countsOf(nil); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestConfiguration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"evictionHard: {memory.available: 5%, nodefs.available: 1Gi}\n" +
		"evictionSoft: {memory.available: 10%}\nevictionSoftGracePeriod: {memory.available: 1m}\n" +
		"containerRuntimeEndpoint: unix://" + dir + "/none.sock\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newReader("/proc", dir)
	r.configuration(t.Context(), []settings.Daemon{
		{Name: "gc", Args: []string{"--config=" + path, "--root-dir=" + dir, "--hostname-override=n"}},
	})
	found := map[string]string{}
	for _, th := range r.thresholds {
		name := th.Signal
		if th.Soft {
			name += " soft"
		}
		found[name] = th.Value
	}
	want := map[string]string{"memory.available": "5%", "nodefs.available": "1Gi", "memory.available soft": "10%"}
	if !maps.Equal(found, want) {
		t.Errorf("thresholds %v, want %v", found, want)
	}
	if len(r.dirs) != 1 || r.dirs[0].path != dir {
		t.Errorf("directories %v", r.dirs)
	}
}
