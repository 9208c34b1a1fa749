package bus

import (
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// burst is how many messages each of these tests sends. They must leave far less than their payload of 1 kB each.
const burst = 4000

var kilobyte = strings.Repeat("x", 1000)

// live is the live heap in bytes.
func live() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestSentEventsLeaveNothingBehind(t *testing.T) {
	c := NewConn(&picky{tries: map[string]int{}}, "test", slog.New(slog.DiscardHandler))
	defer c.Close()
	p := NewEvent[string](Spec{Name: "thing", Keys: "<id>"}).Publisher(c)
	before := live()
	for range burst {
		if err := p.Publish("one", kilobyte); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The fake remembers each subject that it took: 16 bytes, twice that in a slice that grew.
	if held := live() - before; held > burst*64 {
		t.Errorf("%d bytes are held after %d events were sent", held, burst)
	}
	runtime.KeepAlive(p)
}

func TestAKeyCostsLittleMoreThanItsValue(t *testing.T) {
	c := NewConn(&picky{tries: map[string]int{}}, "test", slog.New(slog.DiscardHandler))
	defer c.Close()
	w := NewState[int](Spec{Name: "thing", Keys: "<id>"}).Writer(c)
	before := live()
	for i := range burst {
		if err := w.Set(strconv.Itoa(i), i); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Half of it is the fake's.
	if held := (live() - before) / burst; held > 450 {
		t.Errorf("a key of 4 bytes with a value of 4 bytes costs %d bytes", held)
	}
	runtime.KeepAlive(w)
}
