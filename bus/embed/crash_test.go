package embed

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
	"kubelot.dev/daemon/memory"
)

// childDir names the run directory in the environment of a test process that is to be the bus.
const childDir = "KUBELOT_TEST_BUS_DIR"

// wholeCrew in the environment of such a process asks for the release's crew instead of the suite's.
const wholeCrew = "KUBELOT_TEST_BUS_CREW"

// runChild is the bus as a process of its own, until it is killed.
func runChild(dir string) {
	o := DefaultOptions(dir)
	o.Crew, o.Log = CrewOf(bussuite.Topics(), bussuite.Contracts()), slog.Default()
	var err error
	if os.Getenv(wholeCrew) != "" {
		o.Crew, err = BuiltinCrew()
		memory.ForgoProfile()
		defer memory.Save(context.Background(), o.Log, 1)()
	}
	var s *Server
	if err == nil {
		s, err = New(o)
	}
	if err == nil {
		err = s.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// process starts the bus as a process that dies with the test.
func process(t testing.TB, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childDir+"="+dir)
	child.Stderr = os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	return child
}

func kill(t testing.TB, child *exec.Cmd) {
	t.Helper()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the kill
}

// The bus is killed again and again while a writer writes and a reader reads. What was acknowledged is
// there, the reader ends at the last values, and events come in order without a gap.
func TestKilledBusLosesNothingAcknowledged(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "kubelot-bus-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	live := &liveBus{options: DefaultOptions(dir)}
	child := process(t, dir)
	writer, reader := conn(t, live, "writer"), conn(t, live, "reader")
	changes, err := bussuite.Things.Watch(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	events := bussuite.News.Subscribe(t.Context(), reader, bus.From{Durable: "crash"})
	w, p := bussuite.Things.Writer(writer), bussuite.News.Publisher(writer)

	const rounds, perRound = 6, 400
	for round := range rounds {
		for i := range perRound {
			n := round*perRound + i
			if err := w.Set("k"+strconv.Itoa(i%20), bussuite.Thing{N: n}); err != nil {
				t.Fatal(err)
			}
			if err := p.Publish("k", bussuite.Thing{N: n}); err != nil {
				t.Fatal(err)
			}
			if i%100 == 50 {
				flush(t, w)
			}
		}
		time.Sleep(time.Duration(round) * 5 * time.Millisecond) // in the middle of something, each time of something else
		kill(t, child)
		child = process(t, dir)
	}
	defer kill(t, child)
	flush(t, w)

	want := rounds * perRound
	for next := 0; next < want; {
		o := receive(t, events)
		if o.Value.N > next {
			t.Fatalf("event %d came where %d was due", o.Value.N, next)
		}
		if o.Value.N == next {
			next++
		}
		o.Ack()
	}
	last := map[string]int{}
	for complete := 0; complete < 20; {
		c := receive(t, changes)
		if c.Synced || c.Deleted {
			continue
		}
		if last[c.Key] < want-20 && c.Value.N >= want-20 {
			complete++
		}
		last[c.Key] = c.Value.N
	}
	values, err := bussuite.Things.Read(within(t), reader)
	if err != nil || len(values) != 20 {
		t.Fatalf("the bus has %d keys, %v; want 20", len(values), err)
	}
	for key, v := range values {
		if v.N < want-20 {
			t.Errorf("%s is %d, an old value", key, v.N)
		}
	}
}

// A bus that is killed reads its blocks again and finds the value before a tombstone that has expired. The writer takes
// such a key back. It keeps what an earlier process of its daemon has said, and says that again to a store without it.
func TestRemovedKeysAreGoneAfterAKill(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "kubelot-bus-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	live := &liveBus{options: DefaultOptions(dir)}
	child := process(t, dir)
	defer func() { kill(t, child) }()
	earlier := conn(t, live, "writer")
	w := bussuite.Things.Writer(earlier)
	set := func(key string, n int) {
		t.Helper()
		if err := w.Set(key, bussuite.Thing{N: n}); err != nil {
			t.Fatal(err)
		}
		flush(t, w)
	}
	for n := range 3 {
		set("stays", n)
	}
	earlier.Close()
	writer := conn(t, live, "writer")
	w = bussuite.Things.Writer(writer)
	set("known", 1)
	// A writer that has removed a key doesn't know it. Its own tombstone would take half a minute to expire.
	gone := bus.Message{Subject: "suite.thing.gone", Data: []byte(`{"n":1}`)}
	for _, age := range []string{"", "1"} {
		if age != "" {
			gone.Header = map[string]string{layout.NATSTTL: age}
		}
		if err := writer.Transport().Publish(within(t), gone); err != nil {
			t.Fatal(err)
		}
	}
	reader := conn(t, live, "reader")
	noneIsBack := func() {
		t.Helper()
		var values map[string]bussuite.Thing
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if values, err = bussuite.Things.Read(within(t), reader); err != nil {
				t.Fatal(err)
			}
			if len(values) == 2 && values["stays"].N == 2 {
				return
			}
		}
		t.Fatalf("the bus has %v", values)
	}
	noneIsBack()
	kill(t, child)
	child = process(t, dir)
	noneIsBack()
	kill(t, child)
	if err := os.RemoveAll(live.options.StoreDir); err != nil {
		t.Fatal(err)
	}
	child = process(t, dir)
	noneIsBack()
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v, open := <-from:
		if !open {
			t.Fatal("the channel was closed")
		}
		return v
	case <-time.After(time.Minute):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}
