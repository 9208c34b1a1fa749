package recording

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// message is one of podsync's, so long after noon; empty data is a tombstone.
func message(after time.Duration, subject, data string) bus.Message {
	m := bus.Message{Subject: subject, Time: noon.Add(after), Data: []byte(data), Header: map[string]string{
		bus.HeaderDaemon: "podsync", bus.HeaderSchema: "1",
	}}
	if data == "" {
		m.Header[bus.HeaderTombstone] = "1"
	}
	return m
}

// written is a recording of the messages. Those from before noon are retained.
func written(t *testing.T, messages ...bus.Message) string {
	t.Helper()
	var out strings.Builder
	w, err := NewWriter(&out, Header{Created: noon, From: noon, Kubelot: "v1", Settings: map[string]any{"a": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := w.Add(Of(m, json.RawMessage(m.Data), m.Time.Before(noon))); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func story(t *testing.T) string {
	t.Helper()
	return written(t, message(-time.Hour, "pod.sources", `{"ready":false}`),
		message(time.Second, "pod.sources", `{"ready":true}`),
		message(2*time.Second, "podsync.step.u", `{"step":"a"}`),
		message(3*time.Second, "pod.sources", ``),
		message(4*time.Second, "podsync.step.u", `{"step":"b"}`))
}

func read(text string) (records []Record, err error) {
	r, err := Open(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	for record, err := range r.All() {
		if err != nil {
			return records, err
		}
		records = append(records, record)
	}
	return records, nil
}

func TestRoundTrip(t *testing.T) {
	records, err := read(story(t))
	if err != nil || len(records) != 5 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, want := range []bus.Message{
		message(-time.Hour, "pod.sources", `{"ready":false}`), message(time.Second, "pod.sources", `{"ready":true}`),
	} {
		got := records[i].Message()
		if got.Subject != want.Subject || !bytes.Equal(got.Data, want.Data) || !got.Time.Equal(want.Time) ||
			got.Header[bus.HeaderSchema] != "1" || got.Tombstone() || records[i].Retained != (i == 0) {
			t.Errorf("record %d is %+v", i, records[i])
		}
	}
	if !records[3].Message().Tombstone() {
		t.Error("the tombstone is none any more")
	}
	if r := Of(message(0, "x", "no JSON"), nil, false); !r.Garbled || r.Data != nil {
		t.Errorf("garbled data is recorded: %+v", r)
	}
}

// A recording of release 0.1.0, which had no settings.
const old = `{"kubelot":"recording","version":1,"created":"2026-11-20T12:00:00Z","from":"2026-11-20T12:00:00Z"}
{"time":"2026-11-20T12:00:00Z","subject":"pod.sources","daemon":"podsync","schema":"1","data":{"ready":true}}
`

func TestOldRecordingsCanBeRead(t *testing.T) {
	records, err := read(old)
	if err != nil || len(records) != 1 || string(records[0].Data) != `{"ready":true}` {
		t.Errorf("%v, %v", records, err)
	}
}

func TestBadRecordings(t *testing.T) {
	good := story(t)
	first, rest, _ := strings.Cut(good, "\n")
	for name, c := range map[string]struct{ recording, want string }{
		"empty":      {"", "the file is empty"},
		"text":       {"hello\n" + rest, "the file is no recording"},
		"other JSON": {"{\"kubelot\":\"bundle\"}\n" + rest, "the file is no recording"},
		"no header":  {rest, "the file is no recording"},
		"later format": {
			strings.Replace(good, `"version":1`, `"version":2`, 1),
			"format 2, and this kubelot reads up to 1: use kubelot v1",
		},
		"cut off":      {good[:len(good)-20], "line 6 of the recording is no message"},
		"blank line":   {first + "\n\n" + rest, "line 2 of the recording is no message"},
		"no subject":   {first + "\n{\"time\":\"2026-11-20T12:00:00Z\"}\n", "it has no subject or no time"},
		"no time":      {first + "\n{\"subject\":\"pod.sources\"}\n", "it has no subject or no time"},
		"endless line": {first + "\n\"" + strings.Repeat("x", maxLine), "line 2 is longer than"},
	} {
		if _, err := read(c.recording); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for name, recording := range map[string]string{
		"header alone": first + "\n", "no newline at the end": strings.TrimSuffix(good, "\n"),
		"more fields": strings.Replace(good, `"version":1`, `"version":1,"later":true`, 1),
	} {
		if _, err := read(recording); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// full is a disk that is full.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFullDisk(t *testing.T) {
	if _, err := NewWriter(full{}, Header{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a full disk is no error: %v", err)
	}
}

func TestPlayTakesItsTime(t *testing.T) {
	text := story(t)
	for name, c := range map[string]struct {
		speed float64
		begin time.Time
		took  time.Duration
	}{
		"at once":      {0, time.Time{}, 0},
		"as it was":    {1, time.Time{}, 3 * time.Second},
		"twice":        {2, time.Time{}, 1500 * time.Millisecond},
		"from a time":  {1, noon.Add(3 * time.Second), time.Second},
		"after it all": {1, noon.Add(time.Hour), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := Open(strings.NewReader(text))
				if err != nil {
					t.Fatal(err)
				}
				begun, count := time.Now(), 0
				for _, err := range r.Play(t.Context(), c.speed, c.begin) {
					if err != nil {
						t.Fatal(err)
					}
					count++
				}
				if took := time.Since(begun); took != c.took || count != 5 {
					t.Errorf("%d records in %s, want 5 in %s", count, took, c.took)
				}
			})
		})
	}
}

func TestPlayEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, err := Open(strings.NewReader(story(t)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		count := 0
		for range r.Play(ctx, 1, time.Time{}) {
			count++
		}
		if count != 3 { // the retained one, that of the begin, and the one a second later
			t.Errorf("%d records", count)
		}
	})
}

// What reads the bus reads a recording.
func TestBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			at      time.Time
			sources string
			steps   []string
		}{
			"the beginning": {noon, "map[:{false [] []}]", nil},
			"in between":    {noon.Add(2 * time.Second), "map[:{true [] []}]", []string{"a"}},
			"the end":       {time.Time{}, "map[]", []string{"a", "b"}},
		} {
			r, err := Open(strings.NewReader(story(t)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := ReadBus(r)
			if err == nil && !c.at.IsZero() {
				b, err = b.Until(c.at)
			}
			if err != nil {
				t.Fatal(err)
			}
			conn := bus.NewConn(b, "cli", slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			sources, err := topic.PodSources.Read(ctx, conn)
			if got := fmt.Sprint(sources); err != nil || got != c.sources {
				t.Errorf("%s: sources %s, %v", name, got, err)
			}
			kept, err := topic.PodStep.Read(ctx, conn)
			var steps []string
			for _, step := range kept {
				steps = append(steps, step.Name)
			}
			if err != nil || !slices.Equal(steps, c.steps) {
				t.Errorf("%s: steps %v, %v", name, steps, err)
			}
			if _, err := topic.GCPlan.Do(ctx, conn, topic.GCPlanRequest{}); err == nil {
				t.Errorf("%s: somebody answers", name)
			}
			cancel()
			conn.Close()
		}
	})
}

func TestBusSaysWhen(t *testing.T) {
	for text, want := range map[string]time.Time{story(t): noon.Add(4 * time.Second), written(t): noon} {
		r, err := Open(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		b, err := ReadBus(r)
		if err != nil || !b.At().Equal(want) {
			t.Fatalf("%v, %v, want %s", b, err, want)
		}
		_, err = b.Until(noon.Add(-time.Second))
		if err == nil || !strings.Contains(err.Error(), "begins at 2026-11-20T12:00:00Z") {
			t.Errorf("a moment before the beginning: %v", err)
		}
	}
}
