package up

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestOutputCutsLines(t *testing.T) {
	var out bytes.Buffer
	o := &output{console: &console{out: &out, width: 6}, name: "bus"}
	for _, part := range []string{"one\ntw", "o\r\n\nrest"} {
		if n, err := o.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	o.flush()
	if want := "bus    | one\nbus    | two\nbus    | \nbus    | rest\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	out.Reset()
	if _, err := o.Write(bytes.Repeat([]byte("x"), maxLine+1)); err != nil {
		t.Fatal(err)
	}
	if got := out.Len(); got < maxLine || len(o.rest) != 0 {
		t.Errorf("an endless line must be cut: %d written, %d held", got, len(o.rest))
	}
}

// safeBuffer is written by several children.
type safeBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen chan struct{} // gets a value with each write
}

func (b *safeBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.seen <- struct{}{}:
	default:
	}
	return b.text.Write(data)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await waits until the buffer holds text.
func (b *safeBuffer) await(ctx context.Context, text string) error {
	for !strings.Contains(b.String(), text) {
		select {
		case <-ctx.Done():
			return errors.New("never written: " + text + "\n" + b.String())
		case <-b.seen:
		}
	}
	return nil
}

// scripts makes a crew of shell scripts; each records how it ends in the file order.
func scripts(t *testing.T, bodies map[string]string) (dir, order string) {
	t.Helper()
	dir = t.TempDir()
	order = filepath.Join(dir, "order")
	for _, name := range vital {
		body := bodies[name]
		if body == "" {
			body = `trap 'echo ` + name + ` >> ` + order + `; exit 0' TERM; echo "up $*"; while :; do sleep 0.01; done`
		}
		if err := os.WriteFile(filepath.Join(dir, "kubelot-"+name), []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, order
}

func TestCrewRestartsWhatDiesAndStopsTheBusLast(t *testing.T) {
	dir, order := scripts(t, map[string]string{"pleg": "echo hello; exit 3"})
	listener, err := net.Listen("unix", filepath.Join(dir, "other.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	out := &safeBuffer{seen: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failed := errors.New("work is over")
	err = Run(ctx, Options{
		BinDir: dir, Args: []string{"--v=1"}, Without: []string{"lease"},
		BusSocket: filepath.Join(dir, "bus.sock"), RunDir: dir, Out: out,
	},
		func(ctx context.Context) error {
			return errors.Join(
				out.await(ctx, "pleg    | ended (exit status 3), starting it again in 200ms"),
				out.await(ctx, "volume  | up --v=1"),
				out.await(ctx, "podsync | up --v=1"), out.await(ctx, "stats   | up"), out.await(ctx, "status  | up"),
				out.await(ctx, "probe   | up"), out.await(ctx, "bus     | up"),
				failed)
		})
	if !errors.Is(err, failed) {
		t.Fatalf("error %v\n%s", err, out)
	}
	text, err := os.ReadFile(order)
	if err != nil {
		t.Fatal(err)
	}
	ended := strings.Fields(string(text))
	if len(ended) != 6 || ended[5] != "bus" {
		t.Errorf("children that stopped in order: %v", ended)
	}
	if strings.Contains(out.String(), "lease") {
		t.Error("a daemon that is left out runs")
	}
}

// A daemon that not every release has is started when its executable is there, and not again when that is gone.
func TestExecutableThatComesAndGoes(t *testing.T) {
	dir, _ := scripts(t, nil)
	path := filepath.Join(dir, "kubelot-resource")
	out := &safeBuffer{seen: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := Run(ctx, Options{BinDir: dir, BusSocket: filepath.Join(dir, "bus.sock"), RunDir: dir, Out: out},
		func(ctx context.Context) error {
			return errors.Join(
				out.await(ctx, lineOf("podsync", "up ")),
				os.WriteFile(path+".new", []byte("#!/bin/sh\nrm "+path+"\necho came\n"), 0o700),
				os.Rename(path+".new", path),
				out.await(ctx, "resource | came"),
				out.await(ctx, "resource | "+path+" is gone; it is started when the file is there again"))
		})
	if err != nil || strings.Count(out.String(), "came") != 1 {
		t.Errorf("error %v\n%s", err, out)
	}
}

func TestRefusesToRun(t *testing.T) {
	dir, _ := scripts(t, nil)
	socket := filepath.Join(dir, "bus.sock")
	nothing := func(context.Context) error { return nil }
	err := Run(t.Context(), Options{BinDir: t.TempDir(), BusSocket: socket, RunDir: dir}, nothing)
	if err == nil || !strings.Contains(err.Error(), "has no kubelot-bus, kubelot-lease") {
		t.Errorf("missing executables: %v", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = Run(t.Context(), Options{BinDir: dir, BusSocket: socket, RunDir: dir}, nothing)
	if err == nil || !strings.Contains(err.Error(), "already answers at "+socket) {
		t.Errorf("second crew: %v", err)
	}
}

func TestCompactIsOneChild(t *testing.T) {
	dir := t.TempDir()
	o := Options{BinDir: dir, Compact: true, Args: []string{"--v=2"}, Without: []string{"gc", "bus"}}
	if _, err := crew(o); err == nil || !strings.Contains(err.Error(), "has no kubelot-compact") {
		t.Errorf("without the executable: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kubelot-compact"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	children, err := crew(o)
	if err != nil || len(children) != 1 {
		t.Fatalf("%d children, %v", len(children), err)
	}
	const want = "run lease,pleg,podsync,probe,stats,status,volume,api,resource --v=2"
	if got := strings.Join(children[0].args, " "); got != want {
		t.Errorf("its arguments: %s", got)
	}
}

// A reload reaches the process of each child that runs at that moment, and no child ends by it.
func TestReloadIsPassedOn(t *testing.T) {
	// A shell can't trap a signal that it was started to ignore, as whatever nohup starts is.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) //nolint:forbidigo // for what the children inherit
	defer signal.Stop(hangups)
	bodies := map[string]string{}
	for _, name := range vital {
		bodies[name] = `trap 'echo again' HUP; trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done`
	}
	dir, _ := scripts(t, bodies)
	out := &safeBuffer{seen: make(chan struct{}, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	reloads := make(chan struct{})
	err := Run(ctx, Options{
		BinDir: dir, BusSocket: filepath.Join(dir, "bus.sock"), RunDir: dir, Out: out, Reloads: reloads,
	}, func(ctx context.Context) error {
		var errs []error
		for _, name := range vital {
			errs = append(errs, out.await(ctx, lineOf(name, "up")))
		}
		reloads <- struct{}{}
		for _, name := range vital {
			errs = append(errs, out.await(ctx, lineOf(name, "again")))
		}
		return errors.Join(errs...)
	})
	if err != nil || strings.Contains(out.String(), "starting it again") {
		t.Errorf("error %v\n%s", err, out)
	}
}

// lineOf is a line of a child, as kubelot up shows it.
func lineOf(name, text string) string {
	return name + strings.Repeat(" ", len("podsync")-len(name)) + " | " + text
}
