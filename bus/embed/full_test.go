package embed

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

// A store that is full takes no new key. The keys that it has change, and are removed, which readers are told, and then
// it takes new ones again. So it is after a restart too.
func TestAFullStoreTakesWhatMakesRoom(t *testing.T) {
	b, _ := busOn(t, 64)
	b.start(t)
	t.Cleanup(func() { b.halt(t) })
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	reader := conn(t, b, "reader")
	read := func() int {
		t.Helper()
		values, err := bussuite.Things.Read(within(t), reader)
		if err != nil {
			t.Fatal(err)
		}
		return len(values)
	}
	const keys = 160 // of 128 KiB each; 18 MiB may be kept
	for i := range keys {
		if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i, Text: filling(128 << 10)}); err != nil {
			t.Fatal(err)
		}
	}
	kept := 0
	for settled := 0; settled < 20; time.Sleep(100 * time.Millisecond) {
		settled++
		if n := read(); n != kept {
			kept, settled = n, 0
		}
	}
	if kept == 0 || kept == keys {
		t.Fatalf("the store has %d of %d values; it was to be full", kept, keys)
	}
	// What it has already may change, and grow by as much as an ending adds to a pod.
	had, err := bussuite.Things.Read(within(t), reader)
	if err != nil {
		t.Fatal(err)
	}
	for key := range had {
		if err := w.Set(key, bussuite.Thing{N: -1, Text: filling(128<<10 + 500)}); err != nil {
			t.Fatal(err)
		}
	}
	for old := kept; old > 0; time.Sleep(20 * time.Millisecond) {
		values, err := bussuite.Things.Read(within(t), reader)
		if err != nil || len(values) != kept {
			t.Fatalf("it has %d values, %v; it had %d", len(values), err, kept)
		}
		old = 0
		for _, v := range values {
			if v.N != -1 {
				old++
			}
		}
	}
	b.halt(t)
	b.start(t)
	changes, err := bussuite.Things.Watch(within(t), reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if err := w.Delete("k" + strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Set("after", bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	for known := map[string]bool{}; len(known) != 1 || !known["after"]; {
		c := receive(t, changes)
		switch {
		case c.Synced:
		case c.Deleted:
			delete(known, c.Key)
		default:
			known[c.Key] = true
		}
	}
	if n := read(); n != 1 {
		t.Errorf("%d keys are left, want the one that came after", n)
	}
}

// What a writer no longer waits for isn't stored: it may have said a newer value meanwhile. Nor is a key made so.
func TestReplacementsThatAreTooLate(t *testing.T) {
	b := startBus(t)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	if err := w.Set("k", bussuite.Thing{N: 1}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	nc, err := b.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, test := range []struct {
		key, by string
		stored  int
	}{
		{"k", "", 1},
		{"k", strconv.FormatInt(time.Now().Add(-time.Second).UnixMilli(), 10), 1},
		{"new", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10), 1},
		{"k", strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10), 2},
	} {
		m := nats.NewMsg(layout.ReplacePrefix + "suite.thing." + test.key)
		m.Data = []byte(`{"n":2}`)
		m.Header.Set(layout.ReplaceBy, test.by)
		answer, err := nc.RequestMsg(m, time.Minute)
		if err != nil {
			t.Fatalf("%s by %q: %v", test.key, test.by, err)
		}
		if strings.Contains(string(answer.Data), `"error"`) != (test.stored == 1) {
			t.Errorf("%s by %q: %s", test.key, test.by, answer.Data)
		}
		values, err := bussuite.Things.Read(within(t), conn(t, b, "reader"))
		if err != nil || len(values) != 1 || values["k"].N != test.stored {
			t.Errorf("%s by %q: it has %v, %v", test.key, test.by, values, err)
		}
	}
}
