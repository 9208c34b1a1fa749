package why

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// At an earlier time the pod waited; now it is gone, and its container's volume had been missing.
func TestReadAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		daemon, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer daemon.Close()
		defer cli.Close()
		pods, volumes := topic.PodUpdate.Writer(daemon), topic.VolumeState.Writer(daemon)
		healths, steps := topic.Health.Writer(daemon), topic.PodStep.Publisher(daemon)
		flush := func() {
			t.Helper()
			if err := daemon.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // what follows is stated a minute later
		}
		ref := topic.Ref{Namespace: "default", Name: "web", UID: "u1"}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
		pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "a"}}
		began := time.Now()
		must(t, healths.Set("podsync", topic.DaemonHealth{State: topic.Healthy, Since: began, Beat: began, Started: began}))
		must(t, pods.Set("u1", topic.Pod{Pod: pod, Lifecycle: topic.Syncing, FirstSeen: began}))
		must(t, volumes.Set("u1", topic.PodVolumes{Ref: ref, Volumes: map[string]topic.Volume{
			"v": {Phase: topic.VolumeFailed, Reason: "FailedMount", Message: `secret "x" not found`},
		}}))
		flush()
		then := time.Now()
		flush()
		must(t, volumes.Set("u1", topic.PodVolumes{Ref: ref, Volumes: map[string]topic.Volume{
			"v": {Phase: topic.VolumeMounted},
		}}))
		must(t, steps.Publish("u1", topic.Step{Ref: ref, Name: "create sandbox", Phase: topic.StepEnd, At: time.Now()}))
		must(t, healths.Set("podsync", topic.DaemonHealth{
			State: topic.Unhealthy, Since: time.Now(), Beat: time.Now(), Started: time.Now(),
		}))
		flush()
		must(t, pods.Delete("u1"))
		must(t, volumes.Delete("u1"))
		flush()

		now := time.Now()
		w, err := ReadAt(t.Context(), cli, then, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Steps) != 0 || w.Volumes["u1"].Volumes["v"].Phase != topic.VolumeFailed {
			t.Errorf("steps %v, volumes %v", w.Steps, w.Volumes)
		}
		if h := w.Healths["podsync"]; h.State != topic.Healthy || !h.Beat.Equal(then) || !h.Started.IsZero() {
			t.Errorf("podsync's health is %+v", h)
		}
		if a := Explain(w, ref, then); a.State != Waiting || a.Causes[len(a.Causes)-1].Kind == "" {
			t.Errorf("%+v", a)
		}
		if w, err = ReadAt(t.Context(), cli, now, now); err != nil || len(w.Updates) != 0 || len(w.Steps) != 1 {
			t.Errorf("now: %+v, %v", w.Updates, err)
		}
		if _, err = ReadAt(t.Context(), cli, began.Add(-time.Hour), now); err == nil ||
			!strings.Contains(err.Error(), "history begins ") {
			t.Errorf("a time before the history begins: %v", err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTimeOf(t *testing.T) {
	for text, want := range map[string]time.Time{
		"": noon, "10m": before(10 * time.Minute), "2026-11-20T11:00:00Z": before(time.Hour),
		"2026-11-20T12:59:59.5+01:00": before(500 * time.Millisecond),
	} {
		if got, err := TimeOf(text, noon); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"-10m", "2026-11-21T00:00:00Z", "yesterday", "11:00"} {
		if got, err := TimeOf(text, noon); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
