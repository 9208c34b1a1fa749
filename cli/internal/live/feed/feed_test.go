package feed

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/livetest"
	"kubelot.dev/cli/recording"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// taker gives a model what comes.
type taker struct {
	feed  Feed
	model *live.Model
}

// take takes what comes within a time.
func (k taker) take(d time.Duration) live.Picture {
	late := time.After(d)
	for {
		select {
		case in, ok := <-k.feed.Inputs:
			if !ok {
				return k.model.Picture(k.feed.Now())
			}
			k.model.Take(in)
		case <-late:
			return k.model.Picture(k.feed.Now())
		}
	}
}

func TestNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		update, steps := topic.PodUpdate.Writer(podsync), topic.PodStep.Publisher(podsync)
		set := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		set(update.Set("u1", livetest.Pod("u1", "web", 0, nil)))
		set(steps.Publish("u1", topic.Step{Ref: livetest.Ref("u1", "web"), Name: "create sandbox", Phase: topic.StepEnd}))
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		k := taker{Node(ctx, cli, Options{Since: time.Hour}), live.New()}
		p := k.take(5 * time.Second)
		if !p.Synced || !p.Link.Up || len(p.Pods) != 1 || len(p.Pods[0].Start.Spans) == 0 {
			t.Errorf("at the beginning: %+v", p)
		}
		set(update.Set("u2", livetest.Pod("u2", "other", 0, nil)))
		if p = k.take(time.Second); len(p.Pods) != 2 {
			t.Errorf("a new pod: %+v", p.Pods)
		}
		shared.Disconnect()
		if p = k.take(10 * time.Second); p.Link.Up || !strings.Contains(p.Link.Problem, "the bus doesn't answer") {
			t.Errorf("while the bus is away: %+v", p.Link)
		}
		if len(p.Pods) != 2 {
			t.Errorf("while the bus is away: %+v", p.Pods)
		}
		shared.Reconnect()
		k.take(time.Second) // what happens at the time of the reading itself is in it, or is too old
		set(update.Delete("u1"))
		if p = k.take(10 * time.Second); !p.Link.Up || len(p.Pods) != 1 {
			t.Errorf("when it is back: %+v %+v", p.Link, p.Pods)
		}
		cancel()
		for range k.feed.Inputs {
		}
	})
}

// An end of the context isn't held up by anything that isn't read.
func TestNodeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		for _, uid := range []string{"u1", "u2"} {
			if err := topic.PodUpdate.Writer(podsync).Set(uid, livetest.Pod(uid, uid, 0, nil)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		Node(ctx, cli, Options{})
		time.Sleep(10 * time.Second)
		cancel()
		synctest.Wait()
	})
}

// story is a recording of the story with something retained before it, and something that is retained later.
func story(t *testing.T) *recording.Reader {
	t.Helper()
	var out bytes.Buffer
	w, err := recording.NewWriter(&out, recording.Header{Created: livetest.End, From: livetest.Begin})
	if err != nil {
		t.Fatal(err)
	}
	before := livetest.Message(-time.Hour, "podsync", topic.PodUpdate, "u7",
		livetest.Pod("u7", "before", -time.Hour, nil))
	later := livetest.Message(45*time.Second, "podsync", topic.PodUpdate, "u8",
		livetest.Pod("u8", "later", 45*time.Second, nil))
	for _, m := range []recording.Record{recording.Of(before, before.Data, true), recording.Of(later, later.Data, true)} {
		if err := w.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range livetest.Story() {
		if err := w.Add(recording.Of(m, m.Data, false)); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := recording.Open(&out)
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func names(p live.Picture) string {
	var names []string
	for _, pod := range p.Pods {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

func TestReplay(t *testing.T) {
	at := func(after time.Duration) time.Time { return livetest.At(after) }
	for _, c := range []struct {
		name string
		o    ReplayOptions
		wait time.Duration
		now  time.Time
		pods string
	}{
		{"all at once", ReplayOptions{}, time.Second, livetest.End, "before broken crash old web"},
		{"in its own time", ReplayOptions{Speed: 1}, 5 * time.Second, at(5 * time.Second), "before old web"},
		{
			"ten times as fast",
			ReplayOptions{Speed: 10},
			1200 * time.Millisecond, at(12 * time.Second),
			"before broken old web",
		},
		{"its end", ReplayOptions{Speed: 10}, time.Minute, livetest.End, "before broken crash old web"},
		{
			"from a moment",
			ReplayOptions{Speed: 1, Begin: at(14 * time.Second)},
			500 * time.Millisecond,
			at(15*time.Second + 505*time.Millisecond), "before broken crash old web",
		},
		{"a moment", ReplayOptions{End: at(12 * time.Second)}, time.Second, at(12 * time.Second), "before broken old web"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				k := taker{Replay(ctx, story(t), c.o), live.New()}
				p := k.take(c.wait)
				if !p.At.Equal(c.now) || names(p) != c.pods || !p.Synced {
					t.Errorf("at %s, want %s; pods %s, want %s", p.At, c.now, names(p), c.pods)
				}
				cancel()
				for range k.feed.Inputs {
				}
			})
		})
	}
}

func TestReplayOfABrokenRecording(t *testing.T) {
	header := `{"kubelot":"recording","version":1,"created":"2026-11-20T12:00:00Z","from":"2026-11-20T12:00:00Z"}`
	for text, want := range map[string]string{
		header + "\n{":  "line 2 of the recording is no message",
		header + "\n{}": "line 2 of the recording is no message",
		header + "\n":   "",
	} {
		reader, err := recording.Open(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		p := taker{Replay(t.Context(), reader, ReplayOptions{}), live.New()}.take(time.Minute)
		if !strings.Contains(p.Link.Problem, want) || (want == "") != (p.Link.Problem == "") {
			t.Errorf("%q: %+v", text, p.Link)
		}
	}
}
