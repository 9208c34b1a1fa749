package live_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/livetest"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", name, got)
	}
}

// told is a model that has seen the messages one after the other, as in a replay.
func told(messages []bus.Message) *live.Model {
	m := live.New()
	m.Take(live.Input{RetainedAt: livetest.Begin.Add(-1), Link: &live.Link{Up: true}})
	for _, message := range messages {
		m.Take(live.Input{Message: &message})
	}
	return m
}

// describe is what a picture says that depends on the messages.
func describe(p live.Picture) string {
	var out strings.Builder
	seconds := func(at time.Time) string {
		if at.IsZero() {
			return "..."
		}
		return fmt.Sprintf("%.3f", at.Sub(livetest.Begin).Seconds())
	}
	for _, d := range p.Daemons {
		fmt.Fprintf(&out, "%-9s %-9s restarts=%d lag=%s rate=%.1f %q problem=%q\n", d.Name, d.State, d.Restarts, d.Lag,
			d.Rate, d.Doing, d.Problem)
	}
	for _, pod := range p.Pods {
		fmt.Fprintf(&out, "\n%s/%s %s %s %d/%d: %s\n", pod.Namespace, pod.Name, pod.State, pod.Phase, pod.Ready, pod.Total,
			pod.Sentence)
		for _, s := range pod.Start.Spans {
			fmt.Fprintf(&out, "  %-8s %-14s %s to %s %s\n", s.Stage, s.Object, seconds(s.From), seconds(s.To), s.Error)
		}
		fmt.Fprintf(&out, "  ready %s, partial %v, logs %v\n", seconds(pod.Start.Ready), pod.Start.Partial, pod.Logs)
	}
	fmt.Fprintf(&out, "\nnode %s ready=%v %q, %s, %s, %d cores\n", p.Node.Name, p.Node.Ready, p.Node.Sentence,
		p.Node.Runtime, p.Node.OS, p.Node.Cores)
	for _, h := range p.Happenings {
		fmt.Fprintf(&out, "  %s %s bad=%v %s\n", seconds(h.At), h.Kind, h.Bad, h.What)
	}
	for _, f := range p.Flows {
		fmt.Fprintf(&out, "  %s -> %s: %d, last %s\n", f.Daemon, f.Topic, f.Total, seconds(f.Last))
	}
	return out.String()
}

func TestStory(t *testing.T) {
	golden(t, "story.txt", describe(told(livetest.Story()).Picture(livetest.End)))
}

// A model that comes later is told what is retained, and then the history. It sees the same.
func TestWhoComesLaterSeesTheSame(t *testing.T) {
	story := livetest.Story()
	want := describe(told(story).Picture(livetest.End))
	m := live.New()
	m.Take(live.Input{Retained: retained(story), RetainedAt: livetest.End, Link: &live.Link{Up: true}})
	for _, message := range story {
		m.Take(live.Input{Message: &message})
	}
	if got := describe(m.Picture(livetest.End)); got != want {
		t.Errorf("it sees\n%s\nand not\n%s", got, want)
	}
}

// retained are the last messages of the state topics.
func retained(messages []bus.Message) []bus.Message {
	last := map[string]bus.Message{}
	for _, m := range messages {
		last[m.Subject] = m
	}
	var all []bus.Message
	for _, m := range messages {
		event := strings.HasPrefix(m.Subject, topic.PodStep.Name()) ||
			strings.HasPrefix(m.Subject, topic.KubeEvent.Name()) || m.Subject == topic.GCDecision.Name()
		if !event && last[m.Subject].Time.Equal(m.Time) && !m.Tombstone() {
			all = append(all, m)
		}
	}
	return all
}

// A bus that was away gives messages again.
func TestMessagesThatComeAgainChangeNothing(t *testing.T) {
	story := livetest.Story()
	want := describe(told(story).Picture(livetest.End))
	m := told(story)
	m.Take(live.Input{Retained: retained(story), RetainedAt: livetest.End})
	for _, message := range story[len(story)/2:] {
		m.Take(live.Input{Message: &message})
	}
	if got := describe(m.Picture(livetest.End)); got != want {
		t.Errorf("now it sees\n%s\nand not\n%s", got, want)
	}
}

// A pod that went while the bus was away, or before its history was read, is not there.
func TestGonePods(t *testing.T) {
	names := func(m *live.Model) []string {
		var names []string
		for _, p := range m.Picture(livetest.End).Pods {
			names = append(names, p.Name)
		}
		return names
	}
	story := livetest.Story()
	m := told(story)
	kept := slices.DeleteFunc(retained(story), func(m bus.Message) bool { return strings.Contains(m.Subject, ".u2") })
	m.Take(live.Input{Retained: kept, RetainedAt: livetest.End})
	if got := names(m); slices.Contains(got, "broken") || len(got) != 3 {
		t.Errorf("after the reading: %v", got)
	}
	gone := livetest.Message(49*time.Second, "podsync", topic.PodUpdate, "u1", nil)
	m = told(append(story, gone))
	if got := names(m); slices.Contains(got, "web") || len(got) != 3 {
		t.Errorf("after the tombstone: %v", got)
	}
	m = live.New()
	m.Take(live.Input{Retained: kept, RetainedAt: livetest.End})
	for _, message := range story {
		m.Take(live.Input{Message: &message})
	}
	if got := names(m); slices.Contains(got, "broken") || len(got) != 3 {
		t.Errorf("after the history: %v", got)
	}
}

// What a picture has doesn't change with the model.
func TestPicturesAreTheirOwn(t *testing.T) {
	story := livetest.Story()
	m := told(story[:len(story)/2])
	p := m.Picture(livetest.End)
	before := describe(p)
	for _, message := range story[len(story)/2:] {
		m.Take(live.Input{Message: &message})
	}
	m.Picture(livetest.End)
	if after := describe(p); after != before {
		t.Errorf("the picture changed from\n%s\nto\n%s", before, after)
	}
}

func TestGarbledMessagesAreCounted(t *testing.T) {
	m := told(livetest.Story())
	for _, message := range []bus.Message{
		{Subject: "who.knows", Data: []byte("{}"), Time: livetest.End},
		{Subject: "pod.update.u9", Data: []byte("{"), Time: livetest.End},
		{Subject: "pod.update.u8", Data: []byte("null"), Time: livetest.End},
		{Subject: "health", Data: []byte("{}"), Time: livetest.End},
		{
			Subject: "node.pressure", Data: []byte("{}"), Time: livetest.End,
			Header: map[string]string{bus.HeaderSchema: "99"},
		},
	} {
		m.Take(live.Input{Message: &message})
	}
	p := m.Picture(livetest.End)
	if p.Garbled != 5 || len(p.Pods) != 4 {
		t.Errorf("%d are garbled, and there are %d pods", p.Garbled, len(p.Pods))
	}
}

// Memory doesn't grow with pods that have gone.
func TestPodsThatComeAndGoLeaveNothing(t *testing.T) {
	m := told(nil)
	cycle := func(from, to int) {
		for i := from; i < to; i++ {
			uid, after := fmt.Sprintf("uid-%d", i), time.Duration(i)*time.Second
			ref := livetest.Ref(uid, uid)
			for _, message := range []bus.Message{
				livetest.Message(after, "podsync", topic.PodUpdate, uid, livetest.Pod(uid, uid, after, nil)),
				livetest.Step(after+time.Millisecond, ref, topic.Step{Name: "create sandbox", Duration: time.Millisecond}),
				livetest.Message(after+2*time.Millisecond, "pleg", topic.PLEGEvent, uid, topic.PodObservation{Ref: ref}),
				livetest.Message(after+3*time.Millisecond, "podsync", topic.PodUpdate, uid, nil),
				livetest.Message(after+4*time.Millisecond, "pleg", topic.PLEGEvent, uid, nil),
			} {
				m.Take(live.Input{Message: &message})
			}
		}
		m.Picture(livetest.At(time.Duration(to) * time.Second).Add(time.Hour))
	}
	cycle(0, 200)
	before := live.Remembered(m)
	cycle(200, 2000)
	// Of events no tombstone comes; only the marks of their last messages are left, and these are bounded by the sweep.
	if after := live.Remembered(m); after > before {
		t.Errorf("it remembers %d things, and remembered %d", after, before)
	}
}

func FuzzTake(f *testing.F) {
	for _, m := range livetest.Story() {
		f.Add(m.Subject, m.Data)
	}
	f.Fuzz(func(_ *testing.T, subject string, data []byte) {
		m := told(nil)
		m.Take(live.Input{Message: &bus.Message{Subject: subject, Data: data, Time: livetest.Begin}})
		m.Take(live.Input{Message: &bus.Message{Subject: subject, Data: data, Time: livetest.End}})
		m.Picture(livetest.End)
	})
}
