package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/tap"
)

// desked is a desk whose goroutines end with the test.
func desked(t *testing.T, s Sources) *desk {
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return &desk{ctx: ctx, watch: func(string) {}, sources: s, running: &running}
}

func TestTapPane(t *testing.T) {
	asked := make(chan tap.Filter, 1)
	d := desked(t, Sources{Tap: func(_ context.Context, f tap.Filter, out io.Writer) error {
		asked <- f
		fmt.Fprint(out, "one\ntwo\n"+strings.Repeat("x", 2*tailBytes)+"\n")
		return errors.New("the bus has gone")
	}})
	p := &pane{id: 7, kind: tapPane}
	p.ctx, p.close = context.WithCancel(d.ctx)
	defer p.close()
	p.more = d.tap(p, tap.Filter{Pod: "u1"})
	var got []string
	for p.more != nil {
		msg, ok := p.more().(linesMsg)
		if !ok || msg.id != 7 {
			t.Fatalf("a message for another pane: %+v", msg)
		}
		got = append(got, msg.lines...)
		if msg.end {
			got = append(got, fmt.Sprint(msg.err))
			break
		}
	}
	if f := <-asked; f.Pod != "u1" {
		t.Errorf("the tap was asked for %+v", f)
	}
	if text := strings.Join(got, " "); text != "one two the bus has gone" {
		t.Errorf("it showed %q", text)
	}
}

func TestLogPane(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	long := "2026-11-20T12:00:00.5Z stdout F " + strings.Repeat("y", 1000) + "\n"
	for _, c := range []struct {
		name, text string
		first      string
		lines      int
	}{
		{"empty", "", "the log is empty", 1},
		{"a line", "2026-11-20T12:00:00.5Z stderr F hello world\n", "12:00:00.500 hello world", 1},
		{"no log of a runtime", "hello\n", "hello", 1},
		{"what moves the cursor", "2026-11-20T12:00:00.5Z stdout F \x1b[2Jboo\r\n", `12:00:00.500 \x1b[2Jboo`, 1},
		{"the end of a long one", strings.Repeat(long, 400), "12:00:00.500 " + strings.Repeat("y", 1000), 126},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		d := desked(t, Sources{Files: true})
		p := &pane{id: 1, uid: "u1", logs: []live.Log{{Container: "app", Path: path}}, ctx: t.Context()}
		msg, ok := d.log(p)().(linesMsg)
		if !ok || len(msg.lines) != c.lines || msg.lines[0] != c.first || !msg.whole {
			t.Errorf("%s: %d lines, the first is %.80q", c.name, len(msg.lines), msg.lines)
		}
	}
	p := &pane{id: 1, uid: "u1", logs: []live.Log{{Path: path + ".gone"}}, ctx: t.Context()}
	if msg, _ := desked(t, Sources{Files: true}).log(p)().(linesMsg); msg.err == nil {
		t.Error("a log that isn't there is no error")
	}
	for name, c := range map[string]struct {
		p    *pane
		s    Sources
		want string
	}{
		"a pod of a recording": {&pane{uid: "u1", logs: p.logs}, Sources{}, "a recording has none"},
		"no container yet":     {&pane{uid: "u1"}, Sources{Files: true}, "no container of the pod has been made yet"},
		"no journal":           {&pane{thing: "gc"}, Sources{}, "a recording has none"},
	} {
		c.p.ctx = t.Context()
		msg, _ := desked(t, c.s).log(c.p)().(linesMsg)
		if text := strings.Join(msg.lines, "") + fmt.Sprint(msg.err); !strings.Contains(text, c.want) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

func TestJournalPane(t *testing.T) {
	var args []string
	d := desked(t, Sources{Journal: func(_ context.Context, out io.Writer, a ...string) error {
		args = a
		_, err := io.WriteString(out, "line 1\nline \x1b[31m2\n")
		return err
	}})
	msg, _ := d.log(&pane{thing: "podsync", ctx: t.Context()})().(linesMsg)
	if got := strings.Join(msg.lines, "|"); got != `line 1|line \x1b[31m2` {
		t.Errorf("%q", got)
	}
	if got := strings.Join(args, " "); !strings.Contains(got, "--unit=kubelot-podsync") {
		t.Errorf("journalctl %s", got)
	}
}
