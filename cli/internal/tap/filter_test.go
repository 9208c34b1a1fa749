package tap

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// two are the messages of two pods, one of which has labels, and of the node.
func two(t *testing.T) []bus.Message {
	t.Helper()
	web := topic.Ref{Namespace: "shop", Name: "web", UID: "w"}
	db := topic.Ref{Namespace: "other", Name: "db", UID: "d"}
	pod := func(ref topic.Ref, labels map[string]string) topic.Pod {
		return topic.Pod{Lifecycle: topic.Syncing, Source: "api", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID), Labels: labels,
		}}}
	}
	step := func(ref topic.Ref, what string, took time.Duration, failure string) bus.Message {
		s := topic.Step{Ref: ref, Name: what, Phase: topic.StepEnd, Duration: took, Error: failure, At: noon.Add(time.Second)}
		if took == 0 {
			s.Phase = topic.StepBegin
		}
		return message(t, time.Second, "podsync", "podsync.step."+ref.UID, s)
	}
	return []bus.Message{
		message(t, 0, "podsync", "pod.update.w", pod(web, map[string]string{"app": "web"})),
		message(t, 0, "podsync", "pod.update.d", pod(db, nil)),
		step(web, "create sandbox", 3*time.Second, "no network"),
		step(db, "pull image", time.Second, ""),
		step(web, "pull image", 0, ""),
		step(db, "stop", 0, ""),
		message(t, 2*time.Second, "probe", "probe.result.w.app.readiness", topic.Probe{Message: "refused"}),
		message(t, 2*time.Second, "gc", "gc.decision", topic.Decision{
			Action: topic.ActionRemoveLog, Object: "/x", Pod: &web,
		}),
		message(t, 2*time.Second, "gc", "gc.decision", topic.Decision{Action: topic.ActionRemoveImage, Object: "i"}),
		message(t, 2*time.Second, "gc", "node.pressure", topic.Pressure{}),
		message(t, 3*time.Second, "x", "pod.update.z", "not JSON"),
	}
}

func selector(t *testing.T, text string) labels.Selector {
	t.Helper()
	s, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFilterPicks(t *testing.T) {
	for name, c := range map[string]struct {
		filter Filter
		want   string // the numbers of the messages
	}{
		"all":               {Filter{}, "0 1 2 3 4 5 6 7 8 9 10"},
		"namespace":         {Filter{Namespace: "shop"}, "0 2 4 6 7"},
		"labels":            {Filter{Labels: selector(t, "app=web")}, "0 2 4 6 7"},
		"not these labels":  {Filter{Labels: selector(t, "app!=web")}, "1 3 5 10"},
		"error":             {Filter{Errors: true}, "2 6 10"},
		"error and daemon":  {Filter{Errors: true, Daemon: "probe"}, "6"},
		"slower":            {Filter{SlowerThan: 2 * time.Second}, "2"},
		"as slow":           {Filter{SlowerThan: time.Second}, "2 3"},
		"pod, by gc too":    {Filter{Pod: "shop/web", Topics: []string{"gc"}}, "7"},
		"topic and nothing": {Filter{Topics: []string{"gc.decision"}, Namespace: "none"}, ""},
	} {
		for _, style := range []Style{Text, Wide, Short, JSON} {
			v := newView(Format{Style: style}, c.filter)
			var shown []string
			for i, m := range two(t) {
				line, err := v.Line(m, noon)
				if line != "" || err != nil {
					shown = append(shown, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}[i])
				}
			}
			if got := strings.Join(shown, " "); got != c.want {
				t.Errorf("%s, %s: shows %s, want %s", name, style, got, c.want)
			}
		}
	}
}

func TestStyles(t *testing.T) {
	golden(t, "wide.txt", lines(t, Format{Style: Wide}, Filter{}))
	golden(t, "short.txt", lines(t, Format{Style: Short}, Filter{}))
}

func TestOpenSteps(t *testing.T) {
	now := noon.Add(11 * time.Second)
	open := func(filter Filter, more ...bus.Message) string {
		v := newView(Format{}, filter)
		for _, m := range append(two(t), more...) {
			if line, err := v.Line(m, noon); err != nil {
				t.Fatal(line, err)
			}
		}
		return strings.Join(v.openLines(now, nil), "; ")
	}
	web, db := "still open: shop/web  pull image, for 10s", "still open: other/db  stop, for 10s"
	for name, c := range map[string]struct {
		filter Filter
		more   []bus.Message
		want   string
	}{
		"both":        {want: web + "; " + db},
		"pod":         {filter: Filter{Pod: "web"}, want: web},
		"other topic": {filter: Filter{Topics: []string{"gc"}}},
		"slower":      {filter: Filter{SlowerThan: 11 * time.Second}},
		"errors only": {filter: Filter{Errors: true}},
		"ended": {
			more: []bus.Message{message(t, 0, "podsync", "podsync.step.w", topic.Step{
				Ref: topic.Ref{UID: "w"}, Name: "pull image", Phase: topic.StepEnd,
			})}, want: db,
		},
		"pod removed": {more: []bus.Message{message(t, 0, "podsync", "pod.update.d", nil)}, want: web},
		"podsync restarted": {more: []bus.Message{
			message(t, 0, "podsync", "health.podsync", topic.DaemonHealth{Started: noon.Add(2 * time.Second)}),
		}},
		"podsync goes on": {more: []bus.Message{
			message(t, 0, "podsync", "health.podsync", topic.DaemonHealth{Started: noon}),
		}, want: web + "; " + db},
	} {
		if got := open(c.filter, c.more...); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
