package crew

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/test/bench/measure"
)

// The supervisor of this test's crew is the test itself, and its daemon is sleep.
func TestReading(t *testing.T) {
	dir, err := os.MkdirTemp("", "crew") //nolint:usetesting // a test's name can make t.TempDir longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	run, root := filepath.Join(dir, "run"), filepath.Join(dir, "root")
	for _, d := range []string{filepath.Join(run, "metrics"), filepath.Join(run, "bus"), root} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(run, "bus", "block"), make([]byte, 100_000), 0o644); err != nil {
		t.Fatal(err)
	}
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("no sleep")
	}
	daemon := &exec.Cmd{Path: sleep, Args: []string{"/usr/lib/kubelot-bus", "60"}}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = daemon.Process.Kill(); _ = daemon.Wait() }()
	alone := settled(t, daemon.Process.Pid)
	serve(t, filepath.Join(run, "metrics", "bus.sock"))

	r, err := Crew{PID: os.Getpid(), RunDir: run, RootDir: root}.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bus, err := r.Bus()
	if err != nil || bus.PID != daemon.Process.Pid || bus.PSS < bus.Private || bus.Descriptors < 3 {
		t.Errorf("bus %+v, %v", bus, err)
	}
	if bus.Private != alone.Private {
		t.Errorf("private memory %d, and %d as the benchmark measures it", bus.Private, alone.Private)
	}
	if bus.Heap == nil || *bus.Heap != 3145728 || bus.Goroutines == nil || *bus.Goroutines != 42 {
		t.Errorf("heap %v, goroutines %v; want what the socket says", bus.Heap, bus.Goroutines)
	}
	if r.Store.Count != 2 || r.Store.Bytes < 100_000 || r.Run.Bytes < r.Store.Bytes || r.Root.Count != 1 {
		t.Errorf("store %+v, run %+v, root %+v", r.Store, r.Run, r.Root)
	}
	if up := r.Processes[0]; up.PID != os.Getpid() || up.Heap != nil || up.CPU <= 0 && up.Read <= 0 {
		t.Errorf("the supervisor: %+v; it has no metrics socket", up)
	}
}

// settled is the process once it has begun and its memory changes no more: it sleeps. One that begins may stand still
// too, on a busy machine, but waits for a processor or a disk then.
func settled(t *testing.T, pid int) measure.Process {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("it doesn't sleep: %s, %v", stat, err)
		}
		if !strings.Contains(string(stat), ") S ") {
			continue
		}
		all, err := measure.Processes(pid)
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
}

// What a daemon runs is a part of the daemon, at any depth.
func TestProgramsOfADaemonCountAsIts(t *testing.T) {
	daemon := exec.CommandContext(t.Context(), "sh", "-c", "(sleep 60; :) & (sleep 60; :) & echo; wait")
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(-daemon.Process.Pid, syscall.SIGKILL); _ = daemon.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var all []measure.Process
	for deadline := time.Now().Add(time.Minute); len(all) < 5; { // the shell, two of its own and their programs
		if all, err = measure.Processes(daemon.Process.Pid); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", all, err)
		}
	}
	want := measure.Process{}
	for _, p := range all {
		want.PSS, want.Private, want.Descriptors = want.PSS+p.PSS, want.Private+p.Private, want.Descriptors+p.Descriptors
	}
	up := measure.Process{Name: "up", PID: os.Getpid()}
	found, err := daemons(append([]measure.Process{up}, all...))
	if err != nil || len(found) != 2 || found[0].Name != "up" || found[1].PID != daemon.Process.Pid ||
		found[1].PSS != want.PSS || found[1].Private != want.Private || found[1].Descriptors != want.Descriptors {
		t.Errorf("%+v, %v; want the supervisor and one daemon with %+v", found, err, want)
	}
}

// What samples allocations takes memory, so the crew's daemons don't. What the heap has is known all the same.
func TestTheHeapIsKnownWithoutSamplesOfAllocations(t *testing.T) {
	before := runtime.MemProfileRate
	defer func() { runtime.MemProfileRate = before }()
	runtime.MemProfileRate = 0
	answer := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/heap?gc=1&debug=1", nil)
	pprof.Handler("heap").ServeHTTP(answer, request)
	if n, ok := number(answer.Body.String(), "# HeapAlloc = "); !ok || n <= 0 {
		t.Errorf("heap %v, %v in\n%s", n, ok, answer.Body)
	}
}

func serve(t *testing.T, socket string) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("# TYPE go_goroutines gauge\ngo_goroutines 42\n"))
	})
	mux.HandleFunc("/debug/pprof/heap", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("gc") == "1" {
			_, _ = w.Write([]byte("heap profile: 1\n# HeapAlloc = 3145728\n# HeapSys = 9\n"))
		}
	})
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func TestNoCrew(t *testing.T) {
	if _, err := (Crew{PID: 1 << 30}).Read(t.Context()); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("%v, want that the supervisor is gone", err)
	}
	if _, err := (Reading{}).Bus(); err == nil {
		t.Error("a reading without processes has a bus")
	}
}

func TestStreamAnswers(t *testing.T) {
	s,
		err := parse("EVENT",
		[]byte(`{"config":{"max_bytes":1000,"discard":"old"},"state":{"messages":3,"bytes":90,"num_subjects":2}}`))
	if want := (Stream{
		Name: "EVENT", Messages: 3, Bytes: 90, Subjects: 2, MaxBytes: 1000,
		History: true,
	}); err != nil || s != want {
		t.Errorf("%+v, %v; want %+v", s, err, want)
	}
	if s, err := parse("STATE", []byte(`{"config":{"max_bytes":-1,"discard":"old"},"state":{}}`)); err != nil ||
		s.History {
		t.Errorf("%+v, %v; a stream without a limit drops nothing", s, err)
	}
	if _, err := parse("X", []byte(`{"error":{"description":"stream not found"}}`)); err == nil ||
		!strings.Contains(err.Error(), "stream not found") {
		t.Errorf("%v, want the bus's error", err)
	}
}
