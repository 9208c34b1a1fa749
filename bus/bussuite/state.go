package bussuite

import (
	"fmt"
	"testing"
	"time"

	"kubelot.dev/bus"
)

func testRetained(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	for i := range 50 {
		set(t, w, fmt.Sprintf("k%d", i%10), Thing{N: i})
	}
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	got := collect(t, changes)
	if len(got) != 10 || got["k3"].N != 43 {
		t.Fatalf("retained %v, want ten keys and 43 for k3", got)
	}
	set(t, w, "k3", Thing{N: 100})
	if c := next(t, changes); c.Key != "k3" || c.Value.N != 100 || c.At.IsZero() {
		t.Fatalf("live %+v, want k3 at 100 with its time", c)
	}
	read, err := Things.Read(f.ctx(t), f.conn(t, "reader"))
	must(t, err)
	if len(read) != 10 || read["k3"].N != 100 {
		t.Fatalf("read %v, want ten keys and 100 for k3", read)
	}
}

func testEmpty(t *testing.T, f *fixture) {
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	if got := collect(t, changes); len(got) != 0 {
		t.Fatalf("got %v, want nothing", got)
	}
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	if c := next(t, changes); c.Key != "a" || c.Value.N != 1 {
		t.Fatalf("got %+v, want a at 1", c)
	}
	silent(t, changes) // no second Synced mark
}

func testKeys(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	for _, key := range []string{"a", "b", "c"} {
		set(t, w, key, Thing{N: 1})
	}
	flush(t, w)
	reader := f.conn(t, "reader")
	changes := watch(t, f.ctx(t), Things, reader, "a", "c", "d")
	if got := collect(t, changes); len(got) != 2 {
		t.Fatalf("got %v, want a and c", got)
	}
	set(t, w, "b", Thing{N: 2})
	set(t, w, "d", Thing{N: 2})
	if c := next(t, changes); c.Key != "d" {
		t.Fatalf("got %+v, want d", c)
	}
	if _, err := Things.Watch(f.ctx(t), reader, "a.b"); err == nil {
		t.Fatal("a key of two tokens was taken")
	}
}

func testSingle(t *testing.T, f *fixture) {
	w := Single.Writer(f.conn(t, "writer"))
	set(t, w, "", Thing{N: 7})
	changes := watch(t, f.ctx(t), Single, f.conn(t, "reader"))
	until(t, changes, "", Thing{N: 7})
	if err := w.Set("key", Thing{}); err == nil {
		t.Fatal("a key was taken by a topic without keys")
	}
}

func testTombstone(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	set(t, w, "b", Thing{N: 1})
	flush(t, w)
	reader := f.conn(t, "reader")
	changes := watch(t, f.ctx(t), Things, reader)
	collect(t, changes)
	must(t, w.Delete("a"))
	if c := next(t, changes); c.Key != "a" || !c.Deleted {
		t.Fatalf("got %+v, want a removed", c)
	}
	read, err := Things.Read(f.ctx(t), reader)
	must(t, err)
	if len(read) != 1 {
		t.Fatalf("read %v, want only b", read)
	}
	set(t, w, "a", Thing{N: 1})
	if c := next(t, changes); c.Key != "a" || c.Deleted || c.Value.N != 1 {
		t.Fatalf("got %+v, want a back", c)
	}
}

func testEqual(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	collect(t, changes)
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	silent(t, changes)
}

func testGarbage(t *testing.T, f *fixture) {
	c := f.conn(t, "writer")
	for _, data := range []string{`{"n":"x"}`, "null", "\x00\xff", "", `[1`} {
		must(t, c.Transport().Publish(f.ctx(t), bus.Message{Subject: "suite.thing.bad", Data: []byte(data)}))
	}
	w := Things.Writer(c)
	set(t, w, "good", Thing{N: 1})
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	if got := collect(t, changes); len(got) != 1 || got["good"].N != 1 {
		t.Fatalf("got %v, want only the good key", got)
	}
	must(t, c.Transport().Publish(f.ctx(t), bus.Message{Subject: "suite.thing.bad", Data: []byte("}")}))
	set(t, w, "good", Thing{N: 2})
	until(t, changes, "good", Thing{N: 2})
	if f.log.count("WARN", "suite.thing.bad", "decode") == 0 {
		t.Fatal("the garbage was not logged")
	}
}

func testSlowReader(t *testing.T, f *fixture) {
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	collect(t, changes)
	w := Things.Writer(f.conn(t, "writer"))
	for i := range 3000 {
		set(t, w, fmt.Sprintf("k%d", i%7), Thing{N: i, Text: string(make([]byte, 1000))})
		if i%50 == 0 {
			flush(t, w)
		}
	}
	flush(t, w)
	last := map[string]int{}
	for last["k3"] != 2999 || last["k2"] != 2998 {
		c := next(t, changes)
		last[c.Key] = c.Value.N
	}
}

func testManyReaders(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	reader := f.conn(t, "reader")
	var all []<-chan bus.Change[Thing]
	for range 10 {
		all = append(all, watch(t, f.ctx(t), Things, reader))
	}
	for _, changes := range all {
		if got := collect(t, changes); len(got) != 1 {
			t.Fatalf("got %v, want a", got)
		}
	}
	set(t, w, "b", Thing{N: 2})
	for _, changes := range all {
		if c := next(t, changes); c.Key != "b" {
			t.Fatalf("got %+v, want b", c)
		}
	}
}

func testReaderFirst(t *testing.T, f *fixture) {
	f.Stop(t)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	silent(t, changes)
	f.Start(t, true)
	collect(t, changes)
}

func testWriterFirst(t *testing.T, f *fixture) {
	f.Stop(t)
	w := Things.Writer(f.conn(t, "writer"))
	for i := range 100 {
		set(t, w, "a", Thing{N: i})
	}
	f.Start(t, true)
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	until(t, changes, "a", Thing{N: 99})
}

func testRestartKept(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	collect(t, changes)
	f.Stop(t)
	set(t, w, "b", Thing{N: 2})
	f.Start(t, true)
	until(t, changes, "b", Thing{N: 2})
	read, err := Things.Read(f.ctx(t), f.conn(t, "reader"))
	must(t, err)
	if len(read) != 2 {
		t.Fatalf("read %v, want a and b", read)
	}
	set(t, w, "c", Thing{N: 3})
	until(t, changes, "c", Thing{N: 3})
}

func testRestartLost(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	for i := range 20 {
		set(t, w, fmt.Sprintf("k%d", i), Thing{N: i})
	}
	flush(t, w)
	reader := f.conn(t, "reader")
	changes := watch(t, f.ctx(t), Things, reader)
	collect(t, changes)
	f.Stop(t)
	f.Start(t, false)
	// The writer sends all it knows again, so that a new reader finds it.
	deadline := time.Now().Add(patience)
	for {
		read, err := Things.Read(f.ctx(t), reader)
		must(t, err)
		if len(read) == 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the bus has %d keys again, want 20", len(read))
		}
		time.Sleep(20 * time.Millisecond)
	}
	set(t, w, "k3", Thing{N: 1000})
	for {
		c := next(t, changes)
		if c.Deleted {
			t.Fatalf("the reader was told that %s is gone", c.Key)
		}
		if c.Key == "k3" && c.Value.N == 1000 {
			return
		}
	}
}

func testRemovedWhileAway(t *testing.T, f *fixture) {
	w := Things.Writer(f.conn(t, "writer"))
	set(t, w, "a", Thing{N: 1})
	flush(t, w)
	changes := watch(t, f.ctx(t), Things, f.conn(t, "reader"))
	collect(t, changes)
	f.Stop(t)
	must(t, w.Delete("a"))
	f.Start(t, true)
	for {
		if c := next(t, changes); c.Key == "a" && c.Deleted {
			return
		}
	}
}
