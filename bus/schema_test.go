package bus_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
)

type versioned struct {
	N int `json:"n"`
}

// The same topic as three releases know it.
func versions() (v1, v2, v3 bus.State[versioned]) {
	of := func(schema, oldest int) bus.State[versioned] {
		return bus.NewState[versioned](bus.Spec{Name: "thing", Keys: "<id>", Schema: schema, Oldest: oldest})
	}
	return of(1, 0), of(2, 1), of(3, 3)
}

// A reader takes the schemas that it knows, keeps what it had where it doesn't, says so once and with what to do, and
// says when that is over.
func TestReaderOfAnotherSchema(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		v1, v2, v3 := versions()
		var log bytes.Buffer
		reader := b.ConnWithLog("reader", slog.New(slog.NewTextHandler(&log, nil)))
		t.Cleanup(reader.Close)
		var told [][]string
		reader.OnUnreadable(func(texts []string) { told = append(told, texts) })
		writer := b.Conn("writer")
		t.Cleanup(writer.Close)
		old, next, newest := v1.Writer(writer), v2.Writer(writer), v3.Writer(writer)
		changes, err := v2.Watch(t.Context(), reader)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		go func() {
			for c := range changes {
				if c.Deleted {
					delete(got, c.Key)
				} else if !c.Synced {
					got[c.Key] = c.Value.N
				}
			}
		}()
		say := func(w *bus.Writer[versioned], key string, n int) {
			t.Helper()
			if err := errors.Join(w.Set(key, versioned{n}), w.Flush(t.Context())); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		say(old, "a", 1)
		say(next, "b", 2)
		say(newest, "a", 3)
		say(newest, "b", 4)
		if got["a"] != 1 || got["b"] != 2 {
			t.Errorf("the reader has %v, and must have kept what it could read", got)
		}
		const want = "kubelot-writer says thing in schema 3, and this kubelot-reader reads schemas 1 to 2: " +
			"upgrade kubelot-reader"
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("it was said %d times:\n%s", n, log.String())
		}
		if len(told) != 1 || len(told[0]) != 1 || told[0][0] != want {
			t.Errorf("told %q", told)
		}
		if err := errors.Join(newest.Delete("b"), newest.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, there := got["b"]; there {
			t.Error("a tombstone needs no schema")
		}
		say(next, "a", 5)
		if got["a"] != 5 || len(told) != 2 || len(told[1]) != 0 {
			t.Errorf("after the writer's downgrade: %v, told %q", got, told)
		}
	})
}

func TestSchemaOfOneMessage(t *testing.T) {
	v1, v2, v3 := versions()
	for _, c := range []struct {
		topic  bus.State[versioned]
		header string
		want   string
	}{
		{topic: v1},
		{topic: v2},
		{topic: v1, header: "1"},
		{topic: v2, header: "2"},
		{topic: v3, want: "this kubelot-r reads schema 3: upgrade kubelot-w"},
		{topic: v3, header: "2", want: "upgrade kubelot-w"},
		{topic: v1, header: "2", want: "this kubelot-r reads schema 1: upgrade kubelot-r"},
		{topic: v1, header: "0", want: "must be a number from 1 on"},
		{topic: v1, header: "one", want: `the header Kubelot-Schema is "one"`},
	} {
		m := bus.Message{Header: map[string]string{bus.HeaderDaemon: "w"}}
		if c.header != "" {
			m.Header[bus.HeaderSchema] = c.header
		}
		err := bus.Readable(c.topic, m, "r")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("schema %q read with %d: %v; want %q", c.header, c.topic.Schema(), err, c.want)
		}
	}
}

// fails is the error of a call that the server answers in this way. As long as nobody serves it, it is tried again.
func fails(t *testing.T, served, called bus.Call[versioned, versioned],
	handle func(context.Context, versioned) (versioned, error),
) (err error) {
	t.Helper()
	b := bustest.New()
	server, caller := b.Conn("server"), b.Conn("caller")
	t.Cleanup(server.Close)
	t.Cleanup(caller.Close)
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() { end <- served.Serve(ctx, server, handle) }()
	defer func() {
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
	}()
	for errors.Is(err, bus.ErrNoResponder) || err == nil {
		_, err = called.Do(ctx, caller, versioned{1})
	}
	return err
}

// A request and a reply of another schema fail, with words that say whom to upgrade.
func TestCallOfAnotherSchema(t *testing.T) {
	old := bus.NewCall[versioned, versioned](bus.Spec{Name: "ask", Schema: 1})
	next := bus.NewCall[versioned, versioned](bus.Spec{Name: "ask", Schema: 2})
	for name, c := range map[string]struct {
		server, caller bus.Call[versioned, versioned]
		want           string
	}{
		"a newer caller": {old, next, "kubelot-caller says ask in schema 2, and this kubelot-server reads schema 1: " +
			"upgrade kubelot-server"},
		"an older caller": {next, old, "upgrade kubelot-caller"},
	} {
		t.Run(name, func(t *testing.T) {
			err := fails(t, c.server, c.caller, func(context.Context, versioned) (versioned, error) {
				t.Error("the request was taken")
				return versioned{}, nil
			})
			if !errors.Is(err, bus.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// An error's text goes in a header, which the bus takes only so long, and in which not every character may be.
func TestCallWhoseErrorIsLong(t *testing.T) {
	call := bus.NewCall[versioned, versioned](bus.Spec{Name: "ask", Schema: 1})
	err := fails(t, call, call, func(context.Context, versioned) (versioned, error) {
		return versioned{}, errors.New("spec\x00 is wrong:\n" + strings.Repeat("\u00e4", 1<<20))
	})
	if text := err.Error(); len(text) > 10<<10 || !strings.Contains(text, "spec  is wrong:\n\u00e4") ||
		strings.Contains(text, "\x00") || !utf8.ValidString(text) {
		t.Errorf("%d bytes: %.60q", len(text), text)
	}
}
