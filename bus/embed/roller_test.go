package embed

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

// A burst leaves a block that is nearly empty, and one living key in it. Once the bus is at rest the states take no
// more than they need, and what helped to get there has left nothing behind. So it is where the states may have least.
func TestTheLastBlockIsGivenUpAtRest(t *testing.T) {
	often := func(b *liveBus) {
		b.options.compactEvery, b.options.rollEvery = 100*time.Millisecond, 300*time.Millisecond
	}
	t.Run("plenty of space", func(t *testing.T) { testGivenUp(t, startBus(t, often)) })
	t.Run("little space", func(t *testing.T) {
		b, _ := busOn(t, 64)
		often(b)
		b.start(t)
		t.Cleanup(func() { b.halt(t) })
		testGivenUp(t, b)
	})
}

func testGivenUp(t *testing.T, b *liveBus) {
	t.Helper()
	fillLastBlock(t, b)
	var left int64
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if left = stateBytes(t, b); left < 64<<10 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the states take %d bytes for one key", left)
		}
	}
	changes, err := bussuite.Things.Watch(within(t), conn(t, b, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	for change := range changes {
		if change.Synced {
			break
		}
		if change.Key != "stays" || change.Value.N != 249 {
			t.Errorf("there is %s with %d", change.Key, change.Value.N)
		}
	}
}

// A burst is over when next to nothing is written: the tombstones of its end expire for a while, each with a note.
func TestTheLastBlockIsGivenUpWhileLittleIsWritten(t *testing.T) {
	b := startBus(t, func(b *liveBus) {
		b.options.compactEvery, b.options.rollEvery = 100*time.Millisecond, 300*time.Millisecond
	})
	fillLastBlock(t, b)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	deadline := time.Now().Add(time.Minute)
	for n := 0; stateBytes(t, b) > 256<<10; n++ {
		if time.Now().After(deadline) {
			t.Fatalf("the states take %d bytes for two keys", stateBytes(t, b))
		}
		if err := w.Set("notes", bussuite.Thing{N: n}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// The histories are compressed at rest, and keep nearly all that they have.
func TestHistoriesAreCompressedAtRest(t *testing.T) {
	b := startBus(t, func(b *liveBus) { b.options.rollEvery = 300 * time.Millisecond })
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	for i := range 400 {
		if err := w.Set("changes", bussuite.Thing{N: i, Text: filling(8 << 10)}); err != nil {
			t.Fatal(err)
		}
		flush(t, w)
	}
	kept := b.messages(t, layout.StreamHistory)
	// It comes after the states.
	for deadline := time.Now().Add(time.Minute); kept < 400; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the history has %d messages", kept)
		}
		kept = b.messages(t, layout.StreamHistory)
	}
	dir := blockDir(b.options.StoreDir, layout.StreamHistory)
	for deadline := time.Now().Add(time.Minute); look(dir).all > 1<<20; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the history takes %d bytes", look(dir).all)
		}
	}
	n := b.messages(t, layout.StreamHistory)
	for deadline := time.Now().Add(time.Minute); n > kept && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond) // the last message that fills is removed
		n = b.messages(t, layout.StreamHistory)
	}
	if n > kept || n < kept-fillBytes/(8<<10)-1 {
		t.Errorf("the history had %d messages, and has %d", kept, n)
	}
}

// stateBytes is what the files of the states take, without the server's index of them.
func stateBytes(t *testing.T, b *liveBus) int64 {
	t.Helper()
	var sum int64
	for _, file := range stateFiles(t, b, ".blk") {
		sum += file.Size()
	}
	return sum
}

// The states are left alone where there is little to gain, and it costs nothing to leave them alone.
func TestSmallOrUsedBlocksStay(t *testing.T) {
	for name, of := range map[string]struct{ keys, times int }{
		"few":  {keys: 1, times: 20},
		"used": {keys: 300, times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t, func(b *liveBus) { b.options.rollEvery = 100 * time.Millisecond })
			w := bussuite.Things.Writer(conn(t, b, "writer"))
			for n := range of.times {
				for key := range of.keys {
					if err := w.Set("k"+strconv.Itoa(key), bussuite.Thing{N: n, Text: filling(8 << 10)}); err != nil {
						t.Fatal(err)
					}
				}
				flush(t, w)
			}
			before, connected := blockNames(t, b), connections(t, b)
			time.Sleep(2 * time.Second)
			if after := blockNames(t, b); after != before {
				t.Errorf("the blocks were %s and are %s", before, after)
			}
			// It connects once for the states, to learn that they are in use, and once to fill up the history. When that is
			// depends on the machine.
			if n := connections(t, b) - connected; n > 2 {
				t.Errorf("the roller has connected %d times for blocks that it leaves alone", n)
			}
		})
	}
}

// connections is how many the server has ever had.
func connections(t *testing.T, b *liveBus) uint64 {
	t.Helper()
	figures, err := b.server.admin.server.Varz(nil)
	if err != nil {
		t.Fatal(err)
	}
	return figures.TotalConnections
}

func blockNames(t *testing.T, b *liveBus) string {
	t.Helper()
	var names []string
	for _, file := range stateFiles(t, b, ".blk") {
		names = append(names, file.Name())
	}
	return strings.Join(names, " ")
}
