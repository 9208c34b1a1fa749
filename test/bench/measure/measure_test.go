package measure

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	s := Sample{5, 1, 4, 2, 3}
	if s.Median() != 3 || s.Max() != 5 || s.P95() != 5 {
		t.Errorf("median %d, max %d, p95 %d; want 3, 5, 5", s.Median(), s.Max(), s.P95())
	}
	if s[0] != 5 {
		t.Error("the sample was sorted in place")
	}
	if none := (Sample{}); none.Median() != 0 || none.Max() != 0 {
		t.Error("an empty sample has figures")
	}
	var many Sample
	for i := range 1000 {
		many = append(many, time.Duration(i))
	}
	if many.P99() != 990 || many.P95() != 950 {
		t.Errorf("p99 %d, p95 %d; want 990, 950", many.P99(), many.P95())
	}
}

func TestFiguresOfASample(t *testing.T) {
	f := Figures{}
	f.Time("nothing", nil, "p50")
	f.Time("burst", Sample{2 * time.Second, 3 * time.Second, time.Second}, "p50", "last")
	f.Add(Figures{"more": 1})
	if want := (Figures{"burst.p50": 2, "burst.last": 3, "more": 1}); !maps.Equal(f, want) {
		t.Errorf("got %v, want %v", f, want)
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	// However busy the machine is: the loop ends when its time on the CPU shows.
	var cpu time.Duration
	for deadline := time.Now().Add(30 * time.Second); cpu < 20*time.Millisecond; {
		var err error // at first, that there is none yet
		if cpu, err = CPU(os.Getpid()); time.Now().After(deadline) {
			t.Fatalf("CPU = %v, %v; want what this loop burns", cpu, err)
		}
	}
	pss, err := PSS(os.Getpid())
	if err != nil || pss < 1<<20 {
		t.Errorf("PSS = %d, %v; want a megabyte at least", pss, err)
	}
	all, err := Processes(os.Getpid())
	if err != nil || all[0].PID != os.Getpid() || all[0].Name != "measure.test" || all[0].Descriptors < 3 {
		t.Errorf("processes %+v, %v; want this one first", all, err)
	}
	if _, err := CPU(-1); err == nil {
		t.Error("no error for a process that isn't there")
	}
	if _, err := Processes(-1); err == nil {
		t.Error("no error for processes that aren't there")
	}
}

// Only a process that has ended is left out: the sum of the others would look like that of all.
func TestAProcessThatCantBeReadIsAnError(t *testing.T) {
	reading := func(second error) ([]Process, error) {
		return processes(1, []int{1, 2, 3}, func(pid int) (Process, error) {
			if pid == 2 && second != nil {
				return Process{PID: 2}, second
			}
			return Process{PID: pid, PSS: 10}, nil
		})
	}
	failure := &fs.PathError{Op: "open", Path: "/proc/2/smaps_rollup", Err: syscall.EACCES}
	if all, err := reading(failure); !errors.Is(err, syscall.EACCES) {
		t.Errorf("%+v, %v; want the error", all, err)
	}
	for _, ended := range []error{fs.ErrNotExist, &fs.PathError{Op: "read", Err: syscall.ESRCH}} {
		if all, err := reading(ended); err != nil || len(all) != 2 || all[1].PID != 3 {
			t.Errorf("%v: %+v, %v; want the two that are there", ended, all, err)
		}
	}
	if all, err := processes(1, []int{1, 2}, func(pid int) (Process, error) {
		return Process{PID: pid, PSS: int64(pid - 1)}, nil
	}); err == nil {
		t.Errorf("%+v without the first, which is the agent", all)
	}
}

func TestNameOf(t *testing.T) {
	for want, args := range map[string][]string{
		"bus":       {"/x/.bin/kubelot-bus", "--run-dir=/run"},
		"up":        {"/x/.bin/kubelot", "up", "--run-dir=/run"},
		"kubelet":   {"/x/.bin/kubelet", "--config=y"},
		"2 daemons": {"/x/.bin/kubelot-compact", "run", "bus,gc", "--run-dir=/run"},
		"podsync":   {"/x/.bin/kubelot-all", "podsync"},
		"api":       {"kubelot-api"},
	} {
		if got := nameOf(args); got != want {
			t.Errorf("%v is called %q, want %q", args, got, want)
		}
	}
}

func TestParseRollup(t *testing.T) {
	rollup := "55-7f ---p 0 00:00 0 [rollup]\nRss: 16 kB\nPss:  10 kB\nPss_Dirty: 3 kB\nPrivate_Dirty:   4 kB\n"
	pss, private, err := parseRollup([]byte(rollup))
	if err != nil || pss != 10<<10 || private != 4<<10 {
		t.Errorf("PSS %d, private %d, %v; want 10 and 4 KiB", pss, private, err)
	}
	if _, _, err := parseRollup([]byte("Pss: many kB\n")); err == nil {
		t.Error("no error for what isn't a number")
	}
}

func TestStore(t *testing.T) {
	if _, err := Store(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("no error for a directory that isn't there")
	}
	dir, err := os.MkdirTemp("/dev/shm", "measure")
	if err != nil {
		t.Skip("no tmpfs to write to: ", err)
	}
	defer os.RemoveAll(dir)
	before, err := Store(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	// Others write there too.
	if after, err := Store(dir); err != nil || after-before < 4<<20 {
		t.Errorf("8 MiB more make %d bytes, %v", after-before, err)
	}
}

func TestMetric(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "metrics.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE go_goroutines gauge\ngo_goroutines_more 7\ngo_goroutines 42\n"))
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n, err := Metric(ctx, socket, "go_goroutines"); err != nil || n != 42 {
		t.Errorf("got %v, %v; want 42", n, err)
	}
	if _, err := Metric(ctx, socket, "go_threads"); err == nil {
		t.Error("no error for a metric that isn't there")
	}
}
