package embed

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
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

// Whatever a crash or a bad memory has made of the store's files: the bus comes up, and the writers say again what they know.
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
				values, err := bussuite.Things.Read(within(t), conn(t, b, "reader"))
				if err != nil || len(values) != 6 || values["after"].N != 7 {
					t.Errorf("the bus has %v, %v", values, err)
				}
			})
		}
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

// A full file system under the store delays what is said until there is room again.
func TestFullStore(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("only root may mount: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	b := &liveBus{options: DefaultOptions(t.TempDir())}
	b.options.StoreDir = filepath.Join(dir, "store")
	b.options.Crew, b.options.Log = CrewOf(bussuite.Topics(), bussuite.Contracts()), slog.New(slog.DiscardHandler)
	var told []bool
	b.options.Told = func(trouble error) { told = append(told, trouble == nil) }
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
	for i := range 50 {
		if err := w.Set("a", bussuite.Thing{N: 100 + i, Text: strings.Repeat("x", 100<<10)}); err != nil {
			t.Fatal(err)
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
