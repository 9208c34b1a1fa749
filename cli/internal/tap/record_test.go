package tap

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/recording"
)

// recorded is a recording of the messages.
func recorded(t *testing.T, messages []bus.Message) string {
	t.Helper()
	var out strings.Builder
	r, err := newRecorder(&out, recording.Header{Created: noon, From: noon, Kubelot: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		if err := r.add(m, false); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func replayed(t *testing.T, recording string, o ReplayOptions) (string, error) {
	t.Helper()
	var out strings.Builder
	r, err := OpenRecording(strings.NewReader(recording))
	if err == nil {
		err = Replay(t.Context(), r, o, &out)
	}
	return out.String(), err
}

func TestRecordingHidesSecrets(t *testing.T) {
	got := recorded(t, story(t))
	golden(t, "recording.jsonl", got)
	if strings.Contains(got, secret) || strings.Contains(got, "not JSON") {
		t.Error("the secret is in the recording")
	}
}

// What a replay shows is what the tap has shown.
func TestReplayShowsTheSame(t *testing.T) {
	recording := recorded(t, story(t))
	for _, style := range []Style{Text, Wide, Short, JSON} {
		format := Format{Style: style, Begin: noon}
		want := strings.ReplaceAll(lines(t, format, Filter{}), "error: message on", "message on")
		// A garbled message is not in a recording, only that there was one.
		want = strings.ReplaceAll(want, "invalid character 'o' in literal null (expecting 'u')", "ERROR")
		got, err := replayed(t, recording, ReplayOptions{Format: format})
		got = strings.ReplaceAll(got, "unexpected end of JSON input", "ERROR")
		got = strings.ReplaceAll(got, "JSON: EOF", "JSON: ERROR")
		got, open, _ := strings.Cut(got, "still open: ")
		if err != nil || got != want || open != "" {
			t.Errorf("%s: %v\n%s\nwant\n%s", style, err, got, want)
		}
	}
}

func TestReplayTakesItsTime(t *testing.T) {
	recording := recorded(t, story(t)) // of nine seconds
	for name, c := range map[string]struct {
		o     ReplayOptions
		took  time.Duration
		lines int
	}{
		"at once":      {ReplayOptions{}, 0, 31},
		"as it was":    {ReplayOptions{Speed: 1}, 9 * time.Second, 31},
		"slow":         {ReplayOptions{Speed: 0.5}, 18 * time.Second, 31},
		"late":         {ReplayOptions{Speed: 1, At: 8 * time.Second}, time.Second, 13},
		"from a time":  {ReplayOptions{AtTime: noon.Add(9 * time.Second)}, 0, 10},
		"only the pod": {ReplayOptions{Speed: 2, Filter: Filter{Pod: "web-0"}}, 3500 * time.Millisecond, 18},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				got, err := replayed(t, recording, c.o)
				if took := time.Since(begun); err != nil || took != c.took || strings.Count(got, "\n") != c.lines {
					t.Errorf("%v: %d lines in %s, want %d in %s:\n%s", err, strings.Count(got, "\n"), took, c.lines, c.took, got)
				}
			})
		})
	}
}

// Changes are told against what was before the begin.
func TestReplayKnowsWhatWasBefore(t *testing.T) {
	got, err := replayed(t, recorded(t, story(t)), ReplayOptions{At: 7 * time.Second, Filter: Filter{Pod: "web-0"}})
	if err != nil || !strings.Contains(got, "syncing → terminating") || !strings.Contains(got, "   +7s  event") {
		t.Errorf("%v, shows\n%s", err, got)
	}
}

func TestReplayEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
		defer cancel()
		messages := []bus.Message{
			message(t, 0, "gc", "node.pressure", topic.Pressure{}),
			message(t, 2*time.Hour, "gc", "node.pressure", topic.Pressure{Memory: true}),
		}
		r, err := OpenRecording(strings.NewReader(recorded(t, messages)))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := Replay(ctx, r, ReplayOptions{Speed: 1}, &out); err != nil || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%v: %s", err, out.String())
		}
	})
}

// broken fails after some bytes.
type broken struct{ left int }

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestRunRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, probe, cli := shared.Conn("podsync"), shared.Conn("probe"), shared.Conn("cli")
		defer podsync.Close()
		defer probe.Close()
		defer cli.Close()
		other := examplePod()
		other.ObjectMeta = metav1.ObjectMeta{Namespace: "other", Name: "x", UID: "u2"}
		pods := topic.PodUpdate.Writer(podsync)
		for uid, pod := range map[string]*corev1.Pod{"u1": examplePod(), "u2": other} {
			if err := pods.Set(uid, topic.Pod{Pod: pod, Lifecycle: topic.Syncing}); err != nil {
				t.Fatal(err)
			}
		}
		patches := topic.StatusPatch.Writer(podsync)
		for uid, name := range map[string]string{"u1": "web-0", "u2": "x"} {
			of := topic.PodStatus{Ref: topic.Ref{Namespace: "default", Name: name, UID: uid}}
			if uid == "u2" {
				of.Namespace = "other"
			}
			if err := patches.Set(uid, of); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var out, record bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, cli.Transport(), Options{
				Filter: Filter{Namespace: "default"}, Record: &record, Version: "v1", Settings: map[string]any{"a": "b"},
			}, &out)
		}()
		synctest.Wait()
		results := topic.ProbeResult.Writer(probe)
		for _, key := range []string{"u1.app.readiness", "u2.app.readiness"} {
			if err := results.Set(key, topic.Probe{Success: true}); err != nil {
				t.Fatal(err)
			}
		}
		sources := topic.PodSources.Writer(podsync)
		if err := sources.Set("", topic.Sources{Ready: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "pod.sources") || !strings.Contains(record.String(), `"pod.sources"`) {
			t.Errorf("what is said of the node isn't in the recording alone:\n%s\n%s", &record, &out)
		}
		for _, want := range []string{`"status.patch.u1"`, `"settings":{"a":"b"}`} {
			if !strings.Contains(record.String(), want) {
				t.Errorf("the recording lacks %s, which was retained or set:\n%s", want, &record)
			}
		}
		if strings.Contains(record.String(), secret) || strings.Contains(record.String(), "u2") {
			t.Errorf("recorded what it must not:\n%s", record.String())
		}
		only := Filter{Topics: []string{"probe.result"}}
		got, err := replayed(t, record.String(), ReplayOptions{Format: Format{Style: Short}, Filter: only})
		if err != nil || strings.Count(got, "\n") != 1 ||
			!strings.HasSuffix(got, "  default/web-0  app readiness succeeds\n") {
			t.Errorf("%v: replayed %q, shown was %q", err, got, out.String())
		}
		err = Run(t.Context(), cli.Transport(), Options{Record: &broken{150}}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "record: short write") {
			t.Errorf("a full disk is no error: %v", err)
		}
	})
}

func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		sources := topic.PodSources.Writer(podsync)
		for _, s := range []topic.Sources{{Waiting: []topic.Source{"api"}}, {Ready: true}} {
			if err := sources.Set("", s); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			time.Sleep(time.Second)
		}
		var out bytes.Buffer
		header := recording.Header{Created: time.Now(), From: time.Unix(0, 0), Kubelot: "v1"}
		if err := Collect(t.Context(), cli.Transport(), header, &out); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for line := range strings.Lines(out.String()) {
			var r recording.Record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, fmt.Sprint(r.Subject, r.Retained))
		}
		if got := strings.Join(kinds, " "); got != "false pod.sourcestrue pod.sourcesfalse pod.sourcesfalse" {
			t.Errorf("collected %s:\n%s", got, out.String())
		}
		if err := Collect(t.Context(), cli.Transport(), header, &broken{200}); err == nil {
			t.Error("a full disk is no error")
		}
	})
}

func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"kubelot":"recording","version":1}` + "\n" +
		`{"time":"2026-11-20T12:00:00Z","subject":"pod.sources","data":{"ready":true}}`))
	f.Add([]byte(`{"kubelot":"recording","version":1,"from":"2026-11-20T12:00:00Z"}` + "\n" +
		`{"time":"2026-11-20T12:00:00Z","subject":"podsync.step.u","daemon":"\u001b","data":{"phase":"begin","step":"\n"}}`))
	f.Add([]byte(`{"kubelot":"recording","version":9,"kubelotVersion":"\u001b"}`))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, style := range []Style{Text, Wide, Short, JSON} {
			var out strings.Builder
			r, err := OpenRecording(bytes.NewReader(data))
			if err == nil {
				err = Replay(t.Context(), r, ReplayOptions{Format: Format{Style: style}}, &out)
			}
			if strings.Contains(out.String(), "\x1b") || err != nil && strings.Contains(err.Error(), "\x1b") {
				t.Fatalf("%q, %v", out.String(), err)
			}
			if lines := strings.Count(out.String(), "\n"); lines > 2*bytes.Count(data, []byte("\n")) {
				t.Fatalf("%d lines of %d messages", lines, bytes.Count(data, []byte("\n")))
			}
		}
	})
}
