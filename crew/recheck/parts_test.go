package recheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/recording"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// at is so many seconds after noon.
func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// script makes a recording by hand.
type script struct {
	t   *testing.T
	out strings.Builder
	to  *recording.Writer
}

func newScript(t *testing.T, settings map[string]any) *script {
	t.Helper()
	s := &script{t: t}
	to, err := recording.NewWriter(&s.out, recording.Header{Created: noon, From: noon, Kubelot: "v1", Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	s.to = to
	return s
}

// says adds a message so many seconds after noon; a nil payload is a tombstone. Negative times are retained.
func (s *script) says(seconds float64, subject string, payload any) *script {
	s.t.Helper()
	m := bus.Message{Subject: subject, Time: at(seconds), Header: map[string]string{bus.HeaderSchema: "1"}}
	var data json.RawMessage
	if payload == nil {
		m.Header[bus.HeaderTombstone] = "1"
	} else {
		var err error
		if data, err = json.Marshal(payload); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := s.to.Add(recording.Of(m, data, seconds < 0)); err != nil {
		s.t.Fatal(err)
	}
	return s
}

func (s *script) check() Report {
	s.t.Helper()
	return checked(s.t, []byte(s.out.String()), ownCores())
}

// lines are what was found, in short.
func lines(r Report) string {
	var out strings.Builder
	for _, c := range r.Cores {
		for reason, n := range c.Unjudged {
			fmt.Fprintf(&out, "%s: not judged: %d: %s\n", c.Name, n, reason)
		}
		if c.Same > 0 {
			fmt.Fprintf(&out, "%s: same: %d\n", c.Name, c.Same)
		}
	}
	for _, d := range r.Differences {
		fmt.Fprintf(&out, "%s: %s %s: recorded %s, now %s\n", d.Core, d.At.Format("05.0"), d.Object, d.Recorded, d.Now)
	}
	return out.String()
}

func examplePod() topic.Pod {
	return topic.Pod{Source: topic.SourceAPI, Lifecycle: topic.Syncing, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "app", Image: "x"}},
		},
	}}
}

func ended(name, container string, seconds, took float64) topic.Step {
	return topic.Step{
		Ref: topic.Ref{UID: "u"}, Name: name, Container: container, Phase: topic.StepEnd, At: at(seconds),
		Duration: time.Duration(took * float64(time.Second)),
	}
}

// begun is a recording of a pod that has just come, and of the two steps with which it begins.
func begun(t *testing.T) *script {
	t.Helper()
	return begunAfter(t, 0)
}

// begunAfter is begun where the creation of the sandbox took so many seconds more.
func begunAfter(t *testing.T, more float64) *script {
	t.Helper()
	image := ended("ensure image", "app", 1.2, 0.1)
	image.Image = "x"
	return newScript(t, nil).says(1, "pod.update.u", examplePod()).
		says(1.2, "podsync.step.u", image).
		says(1.5+more, "podsync.step.u", ended("create sandbox", "", 1.5+more, 0.4+more)).
		says(1.6+more, "pleg.event.u", topic.PodObservation{
			At: at(1.55 + more), Ref: topic.Ref{Namespace: "shop", Name: "web", UID: "u"},
			Sandboxes: []topic.Sandbox{{ID: "s", Ready: true, CreatedAt: at(1.2), IPs: []string{"10.0.0.1"}}},
		})
}

func TestStepsThatFollow(t *testing.T) {
	for name, s := range map[string]*script{
		"at once": begun(t).says(2, "podsync.step.u", ended("start container", "app", 2, 0.3)),
		// The runtime dates a sandbox from the beginning of its creation.
		"a slow sandbox": begunAfter(t, 8).says(20, "podsync.step.u", ended("start container", "app", 20, 10)),
	} {
		if got := lines(s.check()); got != "plan: same: 3\n" {
			t.Errorf("%s: found\n%s", name, got)
		}
	}
}

// Whatever a recording can't say isn't held against this version.
func TestStepsThatDoNotFollow(t *testing.T) {
	for name, c := range map[string]struct {
		s    *script
		want string
	}{
		"a stop that nobody asked for": {
			begun(t).says(2, "podsync.step.u", ended("stop container", "app", 2, 0.3)).
				says(4.6, "node.pressure", topic.Pressure{}),
			"plan: same: 2\nplan: 01.7 shop/web app: recorded stop container, now start container app; " +
				"app waits: ContainerCreating\n",
		},
		"a step that is missing": {
			begun(t).says(30, "node.pressure", topic.Pressure{}),
			"plan: same: 2\nplan: 01.5 shop/web app: recorded nothing for 5s, now start container\n",
		},
		"an end without a reason yet": {
			begun(t).says(2, "podsync.step.u", ended("start container", "app", 2, 0.1)).says(2.5, "pod.update.u", ending()),
			"plan: not judged: 1: the recording ends before it must have what was decided by\nplan: same: 3\n",
		},
		"the end of the recording": {begun(t).says(3, "node.pressure", topic.Pressure{}), "plan: same: 2\n"},
		"the worker's own step": {
			begun(t).says(2, "podsync.step.u", ended("release node resources", "", 2, 0.3)),
			"plan: not judged: 1: \"release node resources\" follows from what only podsync's worker knows\nplan: same: 2\n",
		},
		"a step of a pod that isn't there": {
			newScript(t, nil).says(2, "podsync.step.u", ended("start container", "app", 2, 0.3)),
			"plan: not judged: 1: the pod isn't in the recording, only a step of it\n",
		},
		"a restart of podsync": {
			begun(t).says(1.7, "health.podsync", topic.DaemonHealth{PID: 1}).
				says(2, "podsync.step.u", ended("stop container", "app", 2, 0.1)).
				says(2.1, "health.podsync", topic.DaemonHealth{PID: 2}),
			"plan: not judged: 1: podsync was being restarted, and what it knew isn't on the bus\nplan: same: 2\n",
		},
		"an end without a reason": {
			begun(t).says(2, "podsync.step.u", ended("start container", "app", 2, 0.1)).says(2.5, "pod.update.u", ending()).
				says(4.6, "node.pressure", topic.Pressure{}),
			"plan: same: 3\nplan: 02.5 shop/web: recorded the pod begins to end, now ensure image app; " +
				"app waits: ContainerCreating\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(c.s.check()); got != c.want {
				t.Errorf("found\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// ending is the pod when it has begun to end.
func ending() topic.Pod {
	u, seconds, deadline := examplePod(), int64(30), at(32.5)
	u.Lifecycle, u.GracePeriodSeconds, u.Deadline = topic.Terminating, &seconds, &deadline
	return u
}

func TestOtherDecisionsThatCannotBeJudged(t *testing.T) {
	ref := topic.Ref{Namespace: "shop", Name: "web", UID: "u"}
	decision := func(action topic.Action, reason string) topic.Decision {
		return topic.Decision{Action: action, Object: "o", Pod: &ref, Reason: reason, At: at(2)}
	}
	for name, c := range map[string]struct {
		s    *script
		want string
	}{
		"an image": {
			newScript(t, nil).says(2, "gc.decision", decision(topic.ActionRemoveImage, "unused")),
			"pick: not judged: 1: \"remove image\" follows from files and images, which aren't on the bus\n",
		},
		"a container of a pod that isn't there": {
			newScript(t, nil).says(2, "gc.decision", decision(topic.ActionRemoveContainer, "unused")),
			"pick: not judged: 1: the pod isn't in the recording\n",
		},
		"a threshold without settings": {
			newScript(t, nil).says(2, "gc.decision",
				decision(topic.ActionEvict, "hard memory.available<100Mi: 50Mi available of 1Gi; it uses 2Gi")),
			"evict: not judged: 1: the recording has no settings of the node, and so no thresholds\n",
		},
		"a limit of its own": {
			newScript(t, nil).says(2, "gc.decision", decision(topic.ActionEvict, "Usage of EmptyDir volume exceeds")),
			"evict: not judged: 1: it is for a limit of the pod's own, and its usage isn't on the bus\n",
		},
		"a status without its inputs": {
			newScript(t, nil).says(2, "pod.status.u", topic.Merged{Ref: ref}),
			"merge: not judged: 1: what it was merged from is from before the recording\n",
		},
		"sources that have not delivered": {
			newScript(t, nil).says(2, "pod.sources", topic.Sources{Pods: []string{"u"}}),
			"sources: not judged: 1: not all sources had delivered\n",
		},
		"a pod that was left out": {
			newScript(t, nil).says(2, "pod.sources", topic.Sources{Ready: true, Pods: []string{"u"}}),
			"sources: not judged: 1: no wanted pod is in the recording\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := lines(c.s.check()); got != c.want {
				t.Errorf("found\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// An eviction is judged by its figures and the settings of the recording.
func TestEvictions(t *testing.T) {
	settings := map[string]any{"evictionHard": map[string]any{"memory.available": "100Mi"}}
	of := func(reason string, u topic.Pod) string {
		ref := topic.RefOf(u.Pod)
		d := topic.Decision{Action: topic.ActionEvict, Object: "shop/web", Pod: &ref, Reason: reason, At: at(2)}
		r := newScript(t, settings).says(1, "pod.update.u", u).says(2, "gc.decision", d).check()
		_, found, _ := strings.Cut(lines(r), "evict: ")
		return found
	}
	critical := examplePod()
	priority := int32(2_000_001_000)
	critical.Pod.Spec.Priority = &priority
	for reason, c := range map[string]struct {
		pod  topic.Pod
		want string
	}{
		"hard memory.available<100Mi: 50Mi available of 1Gi; it uses": {examplePod(), "same: 1"},
		"hard memory.available<100Mi: 150Mi available of 1Gi; it":     {examplePod(), "isn't met by 150Mi"},
		"hard memory.available<200Mi: 150Mi available of 1Gi; it":     {examplePod(), "there is no threshold"},
		"hard memory.available<100Mi: 51Mi available of 1Gi; it uses": {critical, "the pod is never evicted"},
	} {
		if got := of(reason, c.pod); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", reason, got, c.want)
		}
	}
}

// The state at any moment follows from later readings.
func TestRuntimeAt(t *testing.T) {
	container := topic.Container{
		ID: "c", SandboxID: "s", Name: "app", State: topic.ContainerExited, CreatedAt: at(2), StartedAt: at(3),
		FinishedAt: at(4), ExitCode: 3, Reason: "Error",
	}
	sandbox := topic.Sandbox{ID: "s", Ready: true, CreatedAt: at(1)}
	stopped := sandbox
	stopped.Ready = false
	r := newRuntime(&pod{seen: track[topic.PodObservation]{
		{at: at(5.1), value: topic.PodObservation{
			At: at(5), Sandboxes: []topic.Sandbox{sandbox}, Containers: []topic.Container{container},
		}},
		{at: at(7.1), value: topic.PodObservation{
			At: at(7), Sandboxes: []topic.Sandbox{stopped}, Containers: []topic.Container{container},
		}},
		{at: at(8.1), value: topic.PodObservation{At: at(8), Sandboxes: []topic.Sandbox{stopped}}},
		{at: at(9), gone: true},
	}, steps: []step{{Step: topic.Step{Name: "stop sandbox"}, begin: at(5), end: at(6)}}})
	for seconds, want := range map[float64]string{
		0.5: "", 1: "s true", 2: "s true, c created 0", 3: "s true, c running 0", 4: "s true, c exited 3",
		5: "s true, c exited 3", 6: "s false, c exited 3", 8: "s false", 9: "",
	} {
		var parts []string
		o := r.at(at(seconds), false)
		for _, s := range o.Sandboxes {
			parts = append(parts, fmt.Sprint(s.ID, " ", s.Ready))
		}
		for _, c := range o.Containers {
			parts = append(parts, fmt.Sprint(c.ID, " ", c.State, " ", c.ExitCode))
		}
		if got := strings.Join(parts, ", "); got != want {
			t.Errorf("after %v s: %q, want %q", seconds, got, want)
		}
	}
	// It ended at 4, and was first read so at 5.
	for seconds, want := range map[float64]topic.ContainerState{
		4: topic.ContainerRunning, 4.9: topic.ContainerRunning, 5: topic.ContainerExited,
	} {
		if o := r.at(at(seconds), true); len(o.Containers) != 1 || o.Containers[0].State != want {
			t.Errorf("late, after %v s: %+v, want %s", seconds, o.Containers, want)
		}
	}
}

func TestTrack(t *testing.T) {
	of := track[string]{{at: at(1), value: "a"}, {at: at(2), value: "b"}, {at: at(3), gone: true}}
	for seconds, want := range map[float64]string{0: "", 1: "a", 1.5: "a", 2: "b", 3: "", 4: ""} {
		if got, ok := of.last(at(seconds)); got != want || ok != (want != "") {
			t.Errorf("after %v s: %q, %t", seconds, got, ok)
		}
	}
	for want, period := range map[string][2]float64{"a b": {1.5, 2.5}, "b": {2.5, 9}, "": {3, 9}, "a": {0, 1}} {
		if got := strings.Join(of.during(at(period[0]), at(period[1])), " "); got != want {
			t.Errorf("from %v to %v: %q, want %q", period[0], period[1], got, want)
		}
	}
}

func TestChanges(t *testing.T) {
	a := corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}}
	b := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "Ready", Status: "False"}}, Reason: "Evicted"}
	if got := changes(a, b); got != "conditions[Ready].status=False, phase=absent, reason=Evicted" {
		t.Errorf("%s", got)
	}
	if got := changes(a, a); got != "" {
		t.Errorf("equal values differ: %s", got)
	}
}

// What this version can't read is said, and is no difference.
func TestUnknownSchemas(t *testing.T) {
	s := newScript(t, nil)
	m := bus.Message{Subject: "pod.update.u", Time: at(1), Header: map[string]string{bus.HeaderSchema: "99"}}
	if err := s.to.Add(recording.Of(m, json.RawMessage(`{}`), false)); err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(s.check().Notes, "\n")
	if !strings.Contains(notes, "1 messages of pod.update can't be read") || !strings.Contains(notes, "no settings") {
		t.Errorf("notes: %s", notes)
	}
}

// No recording makes the check fail in another way than by an error.
func FuzzCheck(f *testing.F) {
	head := `{"kubelot":"recording","version":1}` + "\n"
	for _, line := range []string{
		`{"time":"2026-11-20T12:00:00Z","subject":"pod.update.u","data":{"pod":{},"lifecycle":"terminated"}}`,
		`{"time":"2026-11-20T12:00:00Z","subject":"pod.update.u","data":{"pod":null}}`,
		`{"time":"2026-11-20T12:00:00Z","subject":"podsync.step.u","data":{"step":"stop sandbox","phase":"end"}}`,
		`{"time":"2026-11-20T12:00:00Z","subject":"gc.decision","data":{"action":"evict pod","pod":{"uid":"u"},` +
			`"reason":"hard memory.available<1: 1 available of 1;"}}`,
		`{"time":"2026-11-20T12:00:00Z","subject":"pleg.event.u","data":{"containers":[{"state":"running"}]}}`,
	} {
		f.Add([]byte(head + line))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if report, err := judge(bytes.NewReader(data), ownCores()); err == nil && report.text() == "" {
			t.Error("there is no report")
		}
	})
}
