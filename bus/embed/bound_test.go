package embed

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

// A bus that starts while others fill the file system may keep more once they give it back, and less when they take it
// again, but no less than it has. A little more or less changes nothing.
func TestTheLimitFollowsTheSpace(t *testing.T) {
	b, dir := busOn(t, 128)
	b.options.rollEvery = 100 * time.Millisecond
	other := filepath.Join(dir, "other")
	take(t, other, 80)
	b.start(t)
	t.Cleanup(func() { b.halt(t) })
	if got := b.stateLimit(t); got != minState {
		t.Fatalf("at first the states may have %d bytes, want %d", got, minState)
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	b.awaitLimit(t, 31<<20, 32<<20)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	const keys = 160 // of 128 KiB each, more than minState
	for i := range keys {
		if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i, Text: filling(128 << 10)}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	before := b.stateLimit(t)
	take(t, other, 10)
	time.Sleep(time.Second)
	if got := b.stateLimit(t); got != before {
		t.Errorf("the limit was %d and is %d", before, got)
	}
	take(t, other, 75)
	b.awaitLimit(t, 20<<20, 24<<20)
	if values, err := bussuite.Things.Read(within(t), conn(t, b, "reader")); err != nil || len(values) != keys {
		t.Errorf("it has %d values of %d, %v", len(values), keys, err)
	}
}

// It follows where others leave less room than a broken store is opened again with: there it matters most.
func TestTheLimitFollowsWhereLittleSpaceIsLeft(t *testing.T) {
	b, dir := busOn(t, 128)
	b.options.rollEvery = 100 * time.Millisecond
	b.start(t)
	t.Cleanup(func() { b.halt(t) })
	b.awaitLimit(t, 31<<20, 32<<20)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	for i := range 160 {
		if err := w.Set("k"+strconv.Itoa(i), bussuite.Thing{N: i, Text: filling(128 << 10)}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	take(t, filepath.Join(dir, "other"), 95)
	if room(b.options.StoreDir) {
		t.Fatal("there is room left")
	}
	b.awaitLimit(t, 20<<20, 24<<20)
}

// take makes others' file of so many MiB.
func take(t *testing.T, path string, size int64) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, size<<20); err != nil {
		t.Fatal(err)
	}
}

// awaitLimit waits until the states may have at least and at most so much.
func (b *liveBus) awaitLimit(t *testing.T, least, most int64) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		got := b.stateLimit(t)
		if got >= least && got <= most {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the states may have %d bytes, want %d to %d", got, least, most)
		}
	}
}

// stateLimit is what the states may have, in bytes.
func (b *liveBus) stateLimit(t *testing.T) (limit int64) {
	t.Helper()
	err := b.server.admin.do(within(t), func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, layout.StreamState)
		if err == nil {
			limit = stream.CachedInfo().Config.MaxBytes
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return limit
}
