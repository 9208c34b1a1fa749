package embed

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

// files are the store's files of one name, relative to it.
func files(t *testing.T, store string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(store, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
			all = append(all, path)
		}
		return err
	})
	if err != nil || len(all) < 6 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	return all
}

// stateFiles are the files of the states whose names have that suffix, which is .blk for those with the messages.
func stateFiles(t *testing.T, b *liveBus, suffix string) (found []fs.FileInfo) {
	t.Helper()
	for _, path := range files(t, b.options.StoreDir) {
		if !strings.Contains(path, layout.StreamState) || !strings.HasSuffix(path, suffix) {
			continue
		}
		// A file may be replaced meanwhile.
		if info, err := os.Stat(path); err == nil {
			found = append(found, info)
		}
	}
	return found
}

// Whatever a crash or a bad memory has made of the store's files: the bus comes up, and the writers say again what they
// know.
func TestDamagedStoreCostsNoMoreThanItsContent(t *testing.T) {
	damages := map[string]func(path string) error{
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"half": func(path string) error {
			info, err := os.Stat(path)
			return errors.Join(err, os.Truncate(path, info.Size()/2))
		},
		"garbage":     func(path string) error { return os.WriteFile(path, []byte("\x00\xff{garbage}"), 0o600) },
		"missing":     os.Remove,
		"a directory": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
	}
	seen := map[string]bool{}
	probe := startBus(t)
	fillBus(t, probe)
	probe.halt(t)
	for _, path := range files(t, probe.options.StoreDir) {
		name, _ := filepath.Rel(probe.options.StoreDir, path)
		for how, damage := range damages {
			if seen[name+how] {
				continue
			}
			seen[name+how] = true
			t.Run(how+" "+name, func(t *testing.T) {
				b := startBus(t)
				w := fillBus(t, b)
				b.halt(t)
				if err := damage(filepath.Join(b.options.StoreDir, name)); err != nil {
					t.Fatal(err)
				}
				b.start(t)
				if err := w.Set("after", bussuite.Thing{N: 7}); err != nil {
					t.Fatal(err)
				}
				flush(t, w)
				allSix(t, b)
			})
		}
	}
}

// allSix waits for the keys of fillBus and the key after. The writer says that one as soon as it can, and all others
// again when it notices that the bus was away.
func allSix(t *testing.T, b *liveBus) map[string]bussuite.Thing {
	t.Helper()
	reader, ctx := conn(t, b, "reader"), within(t)
	for {
		values, err := bussuite.Things.Read(ctx, reader)
		if err == nil && len(values) == 6 && values["after"].N == 7 {
			return values
		}
		if err != nil || ctx.Err() != nil {
			t.Fatalf("the bus has %v, %v", values, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func fillBus(t *testing.T, b *liveBus) *bus.Writer[bussuite.Thing] {
	t.Helper()
	c := conn(t, b, "writer")
	w := bussuite.Things.Writer(c)
	for i, key := range []string{"a", "b", "c", "d", "e"} {
		if err := w.Set(key, bussuite.Thing{N: i}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, w)
	p := bussuite.News.Publisher(c)
	if err := p.Publish("k", bussuite.Thing{N: 1}); err != nil {
		t.Fatal(err)
	}
	if err := c.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
	return w
}

// busOn is a bus, not started yet, whose store is on a file system of that size in MiB, mounted at dir.
func busOn(t *testing.T, size int) (b *liveBus, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Skipf("only root may mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	b = &liveBus{options: DefaultOptions(t.TempDir())}
	b.options.StoreDir = filepath.Join(dir, "store")
	b.options.Crew, b.options.Log = CrewOf(bussuite.Topics(), bussuite.Contracts()), slog.New(slog.DiscardHandler)
	return b, dir
}

// A full file system under the store delays what is said until there is room again.
func TestFullStore(t *testing.T) {
	b, dir := busOn(t, 3)
	var mu sync.Mutex
	var told []bool
	b.options.Told = func(trouble error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, trouble == nil)
	}
	noticed := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(told, false)
	}
	b.start(t)
	t.Cleanup(func() {
		b.halt(t)
		if len(told) < 3 || !told[0] || told[1] || !told[2] {
			t.Errorf("the bus was told to be well: %v", told)
		}
	})
	w := fillBus(t, b)
	filling := filepath.Join(dir, "filling")
	if err := os.WriteFile(filling, make([]byte, 4<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	for i, end := 0, time.Now().Add(time.Minute); i < 50 || !noticed(); i++ {
		err := w.Set("a", bussuite.Thing{N: 100 + i, Text: strings.Repeat("x", 100<<10)})
		if err != nil || time.Now().After(end) {
			t.Fatalf("the bus has not noticed that the disk is full: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := w.Set("a", bussuite.Thing{N: 7}); err != nil {
		t.Fatal(err)
	}
	if values, err := bussuite.Things.Read(within(t), conn(t, b, "reader")); err != nil || len(values) != 5 {
		t.Errorf("while the disk is full the bus shows %v, %v", values, err)
	}
	if err := os.Remove(filling); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	values, err := bussuite.Things.Read(within(t), conn(t, b, "reader"))
	if err != nil || len(values) != 5 || values["a"].N != 7 {
		t.Errorf("the bus has %v, %v", values, err)
	}
}

// Pods can be large in JSON, and several of them at once.
func TestLargeMessages(t *testing.T) {
	b := startBus(t)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	reader := conn(t, b, "reader")
	changes, err := bussuite.Things.Watch(within(t), reader)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", bus.MaxPayload-1000)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		if err := w.Set(key, bussuite.Thing{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	for got := map[string]bool{}; len(got) < 6; {
		if c := receive(t, changes); !c.Synced {
			got[c.Key] = c.Value.Text == text
		}
	}
	flush(t, w)
	b.halt(t)
	b.start(t)
	if values, err := bussuite.Things.Read(within(t), reader); err != nil || len(values) != 6 {
		t.Errorf("after a restart of the bus %d of 6 large values, %v", len(values), err)
	}
}

// A store that another version has made, or from before another agent's time, is replaced, and that is said once. One
// of v0.1.0, which noted no format, is kept.
func TestStoreOfAnotherFormat(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, store string)
		kept   bool
		says   string
	}{
		"v0.1.0": {
			change: func(t *testing.T, store string) { remove(t, filepath.Join(store, "format")) },
			kept:   true,
		},
		"a later format": {
			change: func(t *testing.T, store string) { place(t, filepath.Join(store, "format"), "2\n") },
			says:   `says format \"2\", and this kubelot-bus uses 1`,
		},
		"a format of nobody": {
			change: func(t *testing.T, store string) { place(t, filepath.Join(store, "format"), "new") },
			says:   `says format \"new\"`,
		},
		"another agent had the node": {
			change: func(t *testing.T, store string) {
				for range 2 {
					if err := bus.Disown(filepath.Dir(store)); err != nil {
						t.Fatal(err)
					}
				}
			},
			says: "another agent has had the node",
		},
		"no store at all": {
			change: func(t *testing.T, store string) {
				remove(t, filepath.Join(store, "jetstream"))
				place(t, filepath.Join(store, "jetstream"), "a file")
			},
			says: "the embedded server did not start",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := startBus(t)
			w := fillBus(t, b)
			b.halt(t)
			var log bytes.Buffer // the bus has stopped when it is read
			b.options.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.change(t, b.options.StoreDir)
			b.start(t)
			if err := w.Set("after", bussuite.Thing{N: 7}); err != nil {
				t.Fatal(err)
			}
			flush(t, w)
			if values := allSix(t, b); values["a"].N != 0 {
				t.Errorf("the bus has %v", values)
			}
			b.halt(t)
			const rebuilt = "can't go on with the bus's store, creating a new one"
			if n := strings.Count(log.String(), rebuilt); n != 1 && !c.kept || n != 0 && c.kept ||
				!strings.Contains(log.String(), c.says) {
				t.Errorf("want %q and that the store is kept: %v; the log:\n%s", c.says, c.kept, log.String())
			}
			if text, err := os.ReadFile(filepath.Join(b.options.StoreDir, "format")); err != nil || string(text) != "1\n" {
				t.Errorf("the store's format is %q, %v", text, err)
			}
			if _, err := os.Lstat(filepath.Join(b.options.StoreDir, bus.Disowned)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the new store is disowned too: %v", err)
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func place(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
