package embed

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

func TestLimitsFollowTheSpace(t *testing.T) {
	for _, test := range []struct {
		all, free, states     int64 // MiB
		state, history, event int64 // MiB
	}{
		{64, 64, 0, 16, 2, 1},
		{200, 200, 0, 50, 5, 2},
		{1 << 10, 1 << 10, 0, 128, 5, 2},
		{100 << 10, 100 << 10, 0, 128, 5, 2},
		{24, 24, 0, 12, 2, 1},         // the floor is at most half of the file system
		{0, 0, 0, 16, 2, 1},           // a file system without a size
		{1 << 10, 100, 0, 25, 5, 2},   // others use the rest
		{1 << 10, 84, 16, 25, 5, 2},   // the bus itself uses some
		{1 << 10, 0, 0, 16, 5, 2},     // the floor, though there is no room
		{1 << 10, 20, 60, 60, 5, 2},   // no less than there is
		{1 << 10, 20, 600, 128, 5, 2}, // but no more than ever
	} {
		want := limits{test.state << 20, test.history << 20, test.event << 20}
		l := limitsFor(space{test.all << 20, test.free << 20, test.states << 20})
		if l != want || reserveOf(l.state) != test.state<<17 {
			t.Errorf("%+v: %+v; want %+v", test, l, want)
		}
	}
}

// The largest store takes at most half of the memory from which on the kernel slows the bus down.
func TestTheStoreStaysBelowMemoryHigh(t *testing.T) {
	unit, err := os.ReadFile("../../deploy/systemd/kubelot-bus.service")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(unit), "\nMemoryHigh=")
	digits, _, _ := strings.Cut(after, "M\n")
	high, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		t.Fatalf("MemoryHigh= of the unit: %v", err)
	}
	l := limitsFor(space{all: 1 << 40, free: 1 << 40})
	// A replacement raises the limit by two messages and a little.
	all := l.state + reserveOf(l.state) + 2*bus.MaxPayload + maxGrowth + l.history + l.event + 2*smallBytes
	if all>>20 > high/2 {
		t.Errorf("the store may have %d MiB, more than half of MemoryHigh, %d MiB", all>>20, high)
	}
}

// messages is how many a stream has.
func (b *liveBus) messages(t *testing.T, stream string) uint64 {
	t.Helper()
	sum := uint64(0)
	for _, n := range b.subjects(t, stream) {
		sum += n
	}
	return sum
}

// subjects are the subjects that a stream has messages of.
func (b *liveBus) subjects(t *testing.T, stream string) map[string]uint64 {
	t.Helper()
	var found map[string]uint64
	err := b.server.admin.do(within(t), func(ctx context.Context, js jetstream.JetStream) error {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(">"))
		if err == nil {
			found = info.State.Subjects
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// expiring publishes tombstones as the client does, but for one second, and returns when all have expired.
func (b *liveBus) expiring(t *testing.T, keys int) {
	t.Helper()
	nc, err := b.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i := range keys {
		m := nats.NewMsg("suite.thing.k" + strconv.Itoa(i))
		m.Header.Set(bus.HeaderTombstone, "1")
		m.Header.Set("Nats-TTL", "1")
		if _, err := nc.RequestMsg(m, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); len(b.subjects(t,
		layout.StreamState)) > 1; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d keys are left", len(b.subjects(t, layout.StreamState)))
		}
	}
}

// What was removed leaves nothing among the states, for readers neither, and stays in the history.
func TestRemovedKeysLeaveNothing(t *testing.T) {
	b := startBus(t)
	writer := conn(t, b, "writer")
	w := bussuite.Things.Writer(writer)
	for i := range 300 {
		if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Set("stays", bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	writer.Close() // it would say again what it knows
	b.expiring(t, 300)
	for range 2 {
		reader := conn(t, b, "reader")
		values, err := bussuite.Things.Read(within(t), reader)
		if err != nil || len(values) != 1 || values["stays"].N != 7 {
			t.Fatalf("the bus has %v, %v; an older value is back where a tombstone went", values, err)
		}
		if history := b.subjects(t, layout.StreamHistory); len(history) != 301 || history["history.suite.thing.k0"] != 2 {
			t.Errorf("the history has %d keys, and %d messages of k0", len(history), history["history.suite.thing.k0"])
		}
		b.halt(t) // a restart changes nothing
		b.start(t)
	}
}

// The files of the states don't grow with the keys that have gone, though one that was there before them stays.
func TestTheStoreDoesNotGrowWithWhatHasGone(t *testing.T) {
	b := startBus(t, func(b *liveBus) { b.options.compactEvery = 100 * time.Millisecond })
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	if err := w.Set("stays", bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	for range 5 {
		for i := range 1000 {
			if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i, Text: filling(8 << 10)}); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, w)
		b.expiring(t, 1000)
	}
	var left int64
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		left = 0
		for _, file := range stateFiles(t, b, "") {
			left += file.Size()
		}
		if left < 64<<10 {
			return
		}
	}
	t.Errorf("%d bytes are left of keys that have gone", left)
}

// A reader that was away while a key's tombstone came and went learns that the key is gone.
func TestAReaderThatWasAwayMissesNoRemoval(t *testing.T) {
	b := startBus(t)
	writer := conn(t, b, "writer")
	w := bussuite.Things.Writer(writer)
	for _, key := range []string{"k0", "stays"} {
		if err := w.Set(key, bussuite.Thing{N: 1}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	writer.Close() // it would say again what it knows
	reader := conn(t, b, "reader")
	changes, err := bussuite.Things.Watch(within(t), reader)
	if err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.Synced {
			break
		}
	}
	b.halt(t)
	socket := b.options.Socket
	b.options.Socket += "2" // the reader doesn't find it
	b.start(t)
	b.expiring(t, 1)
	b.halt(t)
	b.options.Socket = socket
	b.start(t)
	for c := range changes {
		if c.Key == "k0" && c.Deleted {
			return
		}
	}
	t.Fatal("the reader never learned that k0 is gone")
}

// A store that an earlier version of the bus has made is adapted, or made again; the bus comes up in any case.
func TestStoreOfAnotherVersion(t *testing.T) {
	const largeLimits = "eight values of a key and large limits"
	others := map[string][]jetstream.StreamConfig{
		largeLimits: {
			{
				Name: layout.StreamState, Subjects: []string{"suite.thing.*", "suite.single", "suite.secret.*", "suite.own.*"},
				MaxMsgsPerSubject: 8, MaxBytes: 512 << 20, Discard: jetstream.DiscardNew,
			},
			{Name: layout.StreamEvent, Subjects: []string{"suite.news.*"}, MaxBytes: 64 << 20, MaxAge: time.Hour},
			{
				Name: layout.StreamPosition, Subjects: []string{"position.>"}, MaxMsgsPerSubject: 1, MaxBytes: 1 << 20,
				AllowDirect: true,
			},
		},
		"a subject in another stream": {{Name: "OTHER", Subjects: []string{"suite.thing.*"}}},
		"a stream that can't be adapted": {{
			Name: layout.StreamState, Subjects: []string{"suite.>"},
			Retention: jetstream.WorkQueuePolicy,
		}},
		"a history that is a mirror stream": {{Name: layout.StreamHistory, Mirror: &jetstream.StreamSource{Name: "NONE"}}},
	}
	for name, configs := range others {
		t.Run(name, func(t *testing.T) {
			b := &liveBus{options: DefaultOptions(t.TempDir())}
			b.options.Crew, b.options.Log = CrewOf(bussuite.Topics(), bussuite.Contracts()), slog.New(slog.DiscardHandler)
			b.otherStore(t, configs)
			b.start(t)
			t.Cleanup(func() { b.halt(t) })
			w := bussuite.Things.Writer(conn(t, b, "writer"))
			if err := w.Set("a", bussuite.Thing{N: 7}); err != nil {
				t.Fatal(err)
			}
			flush(t, w)
			values, err := bussuite.Things.Read(within(t), conn(t, b, "reader"))
			if err != nil || values["a"].N != 7 {
				t.Errorf("the bus has %v, %v", values, err)
			}
			if _, adapted := values["old"]; adapted != (name == largeLimits) {
				t.Errorf("what the earlier bus had is kept: %v", adapted)
			}
		})
	}
}

// otherStore makes the streams with a server of its own.
func (b *liveBus) otherStore(t *testing.T, configs []jetstream.StreamConfig) {
	t.Helper()
	own, err := newAdmin()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(b.options)
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := s.lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if own.server, _, err = s.start(own.public, newNatsLog(b.options.Log)); err != nil {
		t.Fatal(err)
	}
	defer own.server.WaitForShutdown()
	defer own.server.Shutdown()
	err = own.do(within(t), func(ctx context.Context, js jetstream.JetStream) error {
		for _, config := range configs {
			if _, err := js.CreateStream(ctx, config); err != nil {
				return err
			}
		}
		if len(configs[0].Subjects) == 0 {
			return nil
		}
		_, err := js.Publish(ctx, "suite.thing.old", []byte(`{"n":1}`))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// However much a daemon says of itself, the others can say theirs.
func TestADaemonsOwnStateTakesNoRoomOfOthers(t *testing.T) {
	b := startBus(t)
	large, small := conn(t, b, "writer"), conn(t, b, "reader")
	for _, size := range []int{smallBytes, smallBytes/maxDaemons + 1} {
		m := bus.Message{Subject: "suite.own.writer", Data: make([]byte, size)}
		if err := large.Transport().Publish(within(t), m); !errors.Is(err, bus.ErrTooLarge) {
			t.Errorf("%d bytes: got %v, want that they are too large", size, err)
		}
	}
	w := bussuite.Own.Writer(small)
	if err := w.Set("reader", bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	if values, err := bussuite.Own.Read(within(t), small); err != nil || values["reader"].N != 7 {
		t.Errorf("the bus has %v, %v", values, err)
	}
}

// A reader that comes back while values are being replaced isn't told that a key is gone which is there.
func TestAReaderThatComesBackLosesNoLiveKey(t *testing.T) {
	b := startBus(t)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	const keys = 200
	say := func(n int) {
		for i := range keys {
			if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: n}); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(0)
	flush(t, w)
	changes, err := bussuite.Things.Watch(within(t), conn(t, b, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for round := range 5 {
		b.halt(t)
		b.start(t)
		for range 30 {
			last++
			say(last)
			time.Sleep(3 * time.Millisecond)
		}
		for c := range changes {
			if c.Deleted {
				t.Fatalf("round %d: the reader is told that %s is gone", round, c.Key)
			}
			if c.Value.N == last {
				break
			}
		}
	}
}

// The name of a device plugin has a slash, and a name's dots are colons (topic.PluginKey).
func TestKeysOfPlugins(t *testing.T) {
	b := startBus(t)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	const key = "vendor:example/gpu-1_x"
	if err := w.Set(key, bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	changes, err := bussuite.Things.Watch(within(t), conn(t, b, "reader"), key)
	if err != nil {
		t.Fatal(err)
	}
	if c := <-changes; c.Key != key || c.Value.N != 7 {
		t.Errorf("the reader sees %+v", c)
	}
	if err := w.Delete(key); err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.Deleted && c.Key == key {
			return
		}
	}
	t.Error("the reader doesn't see that it is gone")
}
