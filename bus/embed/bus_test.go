package embed

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
)

func conn(t testing.TB, b *liveBus, daemon string) *bus.Conn {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c := bus.NewConn(b.dial(t, KeyFile(b.options.KeyDir, daemon), daemon, log), daemon, log)
	t.Cleanup(c.Close)
	return c
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func flush(t testing.TB, w *bus.Writer[bussuite.Thing]) {
	t.Helper()
	if err := w.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

// What comes over the socket and isn't NATS harms nobody.
func TestGarbageOnTheSocket(t *testing.T) {
	b := startBus(t)
	for _, garbage := range []string{
		"", "\x00\x01\x02", "GET / HTTP/1.1\r\n\r\n", "CONNECT {}\r\nPING\r\n",
		strings.Repeat("x", 1<<20),
	} {
		raw, err := net.Dial("unix", b.options.Socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(raw, garbage) // the bus may have hung up already
		_ = raw.Close()
	}
	idle, err := net.Dial("unix", b.options.Socket) // never says anything
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	if err := w.Set("a", bussuite.Thing{N: 1}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
}

func TestKeysAndSocketArePrivate(t *testing.T) {
	b := startBus(t)
	before, err := os.ReadFile(KeyFile(b.options.KeyDir, "writer"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		KeyFile(b.options.KeyDir, "writer"), KeyFile(b.options.KeyDir, "cli"),
		b.options.Socket,
	} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want mode 0600", path, info.Mode(), err)
		}
	}
	b.halt(t)
	b.start(t)
	after, err := os.ReadFile(KeyFile(b.options.KeyDir, "writer"))
	if err != nil || string(after) != string(before) {
		t.Fatalf("the key changed over a restart (%v)", err)
	}
}

// A daemon with a user of its own gets its key, and the bus, by its groups; without the groups, only the owner does.
func TestGroupsGetKeysAndSocket(t *testing.T) {
	gid := os.Getgid()
	b := startBus(t, func(b *liveBus) {
		b.options.Group = func(name string) (int, error) {
			if name == "kubelot-reader" {
				return 0, user.UnknownGroupError(name)
			}
			return gid, nil
		}
	})
	for path, want := range map[string]os.FileMode{
		KeyFile(b.options.KeyDir, "writer"): 0o640, KeyFile(b.options.KeyDir, "reader"): 0o600, b.options.Socket: 0o660,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != want || int(owner.Gid) != gid {
			t.Errorf("%s has the mode %v and the group %d, want %v and %d", path, info.Mode(), owner.Gid, want, gid)
		}
	}
}

// A second bus on the same directory must not take the socket away from the first.
func TestOnlyOneBus(t *testing.T) {
	b := startBus(t)
	second, err := New(b.options)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(within(t)); err == nil || !strings.Contains(err.Error(), "another kubelot-bus") {
		t.Fatalf("got %v, want that another bus runs", err)
	}
	if _, err := bussuite.Things.Read(within(t), conn(t, b, "reader")); err != nil {
		t.Fatal(err)
	}
}

func TestCLIReadsAllAndWritesNothing(t *testing.T) {
	b := startBus(t)
	w := bussuite.Secret.Writer(conn(t, b, "writer"))
	if err := w.Set("a", bussuite.Thing{N: 1}); err != nil {
		t.Fatal(err)
	}
	flush(t, w)
	cli := conn(t, b, "cli")
	all := cli.Transport().WatchEvents(within(t), []string{">"}, bus.From{Since: time.Now().Add(-time.Hour)})
	d := <-all
	for d.Synced { // the history may get the message a moment after the bus has taken it
		d = <-all
	}
	if d.Subject != "suite.secret.a" {
		t.Fatalf("got %q, want the secret thing", d.Subject)
	}
	for _, subject := range []string{
		"suite.thing.a", "suite.sum", "$JS.API.STREAM.DELETE.STATE",
		"$JS.API.STREAM.PURGE.EVENT", "position.reader.x.y",
	} {
		err := cli.Transport().Publish(within(t), bus.Message{Subject: subject, Data: []byte("{}")})
		if !errors.Is(err, bus.ErrDenied) {
			t.Errorf("publish %s: got %v, want that it is denied", subject, err)
		}
	}
}

// A call that waits for its reply takes little memory, for many may wait at once.
func TestACallTakesLittleMemory(t *testing.T) {
	b := startBus(t)
	ctx, cancel := context.WithCancel(t.Context())
	server, ended := conn(t, b, "writer"), make(chan error, 1)
	go func() {
		ended <- bussuite.Sum.Serve(ctx, server, func(_ context.Context, in bussuite.Thing) (bussuite.Reply, error) {
			return bussuite.Reply{Sum: in.N}, nil
		})
	}()
	caller, done := conn(t, b, "reader"), 0
	call := func() {
		_, err := bussuite.Sum.Do(within(t), caller, bussuite.Thing{N: 1})
		switch {
		case err == nil:
			done++
		case !errors.Is(err, bus.ErrUnavailable):
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(time.Minute); done == 0 && time.Now().Before(end); {
		call()
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const calls = 50
	for range calls {
		call()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / calls; each > 128<<10 || done != calls+1 {
		t.Errorf("%d of %d calls were answered, and took %d bytes each, with the bus", done-1, calls, each)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestListenOnLoopbackOnly(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	o.Crew, o.Log = CrewOf(bussuite.Topics(), bussuite.Contracts()), slog.New(slog.DiscardHandler)
	for listen, good := range map[string]bool{
		"127.0.0.1:4222": true, "localhost:0": true, "[::1]:4222": true, "": true,
		"0.0.0.0:4222": false, ":4222": false, "10.0.0.1:4222": false, "127.0.0.1": false, "127.0.0.1:x": false,
	} {
		o.Listen = listen
		if _, err := New(o); (err == nil) != good {
			t.Errorf("--listen %q: got %v", listen, err)
		}
	}
}

func TestBuiltinCrew(t *testing.T) {
	crew, err := BuiltinCrew()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range crew.Daemons {
		names[m.Name] = true
	}
	for _, want := range []string{"podsync", "pleg", "status", "lease", "volume", "stats", "probe", "gc", "api", "cli"} {
		if !names[want] {
			t.Errorf("the built-in crew lacks %s", want)
		}
	}
}

func TestDamagedKeyIsNamed(t *testing.T) {
	b := startBus(t)
	b.halt(t)
	file := KeyFile(b.options.KeyDir, "writer")
	if err := os.WriteFile(file, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(b.options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(within(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Fatalf("got %v, want the damaged key file", err)
	}
}
