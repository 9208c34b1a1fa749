package pleg

import (
	"errors"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	created = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
	started = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	stopped = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
	deleted = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
)

// seen is a pod with one sandbox and one container in a state; no state means no container.
func seen(uid string, state topic.ContainerState) topic.PodObservation {
	result := topic.PodObservation{
		Ref: topic.Ref{UID: uid}, Sandboxes: []topic.Sandbox{{ID: uid + "-box", Ready: true}}, Containers: []topic.Container{},
	}
	if state != "" {
		result.Containers = append(result.Containers, topic.Container{ID: uid + "-c", Name: "app", State: state})
	}
	return result
}

func nothing(uid string) topic.PodObservation {
	return topic.PodObservation{Ref: topic.Ref{UID: uid}, Sandboxes: []topic.Sandbox{}, Containers: []topic.Container{}}
}

// read takes the next reading, which must be of uid, and ends it.
func read(t *testing.T, tr *tracker, uid string, now time.Time, s topic.PodObservation) outcome {
	t.Helper()
	got, _, ok := tr.next()
	if !ok || got != uid {
		t.Fatalf("next = %q, %t; want %s", got, ok, uid)
	}
	return tr.done(now, uid, s, nil)
}

func idle(t *testing.T, tr *tracker) {
	t.Helper()
	if uid, _, ok := tr.next(); ok {
		t.Fatalf("%s is read for no reason", uid)
	}
}

func TestEventsCoalesceAndNeverReadAPodTwiceAtOnce(t *testing.T) {
	tr := newTracker()
	for range 5 {
		if _, pause, known := tr.event(start, event{object: "u-c", pod: "u", kind: started}); pause != 0 || !known {
			t.Fatal("a start waits")
		}
	}
	uid, _, _ := tr.next()
	tr.event(start, event{object: "u-c", pod: "u", kind: stopped})
	idle(t, tr)
	if out := tr.done(start, uid, seen("u", topic.ContainerRunning), nil); !out.publish {
		t.Error("the first observation isn't published")
	}
	if out := read(t, tr, "u", start, seen("u", topic.ContainerExited)); !out.publish || len(out.changes) != 1 {
		t.Errorf("the exit gave %+v", out)
	}
	idle(t, tr)
	tr.mark("u")
	if out := read(t, tr, "u", start, seen("u", topic.ContainerExited)); out.publish || out.remove {
		t.Errorf("an equal observation gave %+v", out)
	}
}

func TestCreationWaitsForTheStart(t *testing.T) {
	tr := newTracker()
	if _, pause, _ := tr.event(start, event{object: "u-c", pod: "u", kind: created}); pause == 0 {
		t.Error("a creation doesn't wait")
	}
	idle(t, tr)
	tr.event(start.Add(time.Millisecond), event{object: "u-c", pod: "u", kind: started})
	read(t, tr, "u", start, seen("u", topic.ContainerRunning))
	tr.woken(start.Add(time.Second), "u")
	idle(t, tr)
	tr.event(start, event{object: "u-d", pod: "u", kind: created})
	tr.woken(start.Add(time.Millisecond), "u")
	idle(t, tr)
	tr.woken(start.Add(comingUp), "u")
	read(t, tr, "u", start, seen("u", topic.ContainerRunning))
}

func TestASandboxWaitsForItsFirstContainer(t *testing.T) {
	tr := newTracker()
	if _, pause, _ := tr.event(start, event{object: "u-box", pod: "u", kind: started, sandbox: true}); pause == 0 {
		t.Error("a started sandbox doesn't wait for its containers")
	}
	idle(t, tr)
	tr.event(start, event{object: "u-c", pod: "u", kind: started})
	read(t, tr, "u", start, seen("u", topic.ContainerRunning))
	if _, pause, _ := tr.event(start, event{object: "u-box", pod: "u", kind: stopped, sandbox: true}); pause != 0 {
		t.Error("the end of a sandbox waits")
	}
}

// The removals of a pod's containers and of its sandbox are seen in one reading.
func TestWhatGoesAwayIsReadOnce(t *testing.T) {
	tr := newTracker()
	tr.mark("u")
	read(t, tr, "u", start, seen("u", topic.ContainerExited))
	_, pause, _ := tr.event(start, event{object: "u-c", kind: deleted})
	tr.event(start.Add(40*time.Millisecond), event{object: "u-box", kind: deleted})
	tr.woken(start.Add(50*time.Millisecond), "u")
	idle(t, tr)
	tr.woken(start.Add(pause), "u")
	if out := read(t, tr, "u", start.Add(pause), nothing("u")); !out.remove {
		t.Errorf("a pod that is gone gave %+v", out)
	}
	idle(t, tr)
}

func TestContradictionIsReadAgainAndThenBelieved(t *testing.T) {
	tr := newTracker()
	tr.mark("u")
	read(t, tr, "u", start, seen("u", ""))
	now := start
	tr.event(now, event{object: "u-box", pod: "", kind: deleted})
	pause := goingAway
	for range contradictionRetries {
		now = now.Add(pause)
		tr.woken(now, "u")
		out := read(t, tr, "u", now, seen("u", ""))
		if out.wake == 0 || out.publish || out.remove {
			t.Fatalf("a sandbox that is listed after its deletion gave %+v", out)
		}
		pause = out.wake
	}
	tr.woken(now.Add(pause), "u")
	if out := read(t, tr, "u", now.Add(pause), seen("u", "")); out.wake != 0 {
		t.Errorf("after the last retry: %+v", out)
	}
	tr.event(now, event{object: "u-box", pod: "", kind: deleted})
	tr.woken(now.Add(time.Hour), "u")
	if out := read(t, tr, "u", now, nothing("u")); !out.remove || out.wake != 0 {
		t.Errorf("a pod that is gone gave %+v", out)
	}
	if len(tr.pods) != 0 || len(tr.owner) != 0 {
		t.Errorf("a pod that is gone leaves %v %v", tr.pods, tr.owner)
	}
}

func TestContradicted(t *testing.T) {
	for _, c := range []struct {
		kind  runtimeapi.ContainerEventType
		state topic.ContainerState
		want  bool
	}{
		{created, "", true},
		{created, topic.ContainerCreated, false},
		{created, topic.ContainerExited, false},
		{started, "", true},
		{started, topic.ContainerCreated, true},
		{started, topic.ContainerRunning, false},
		{started, topic.ContainerExited, false},
		{stopped, "", false},
		{stopped, topic.ContainerRunning, true},
		{stopped, topic.ContainerExited, false},
		{stopped, topic.ContainerUnknown, false},
		{deleted, "", false},
		{deleted, topic.ContainerExited, true},
	} {
		if got := contradicted(c.kind, "u-c", seen("u", c.state)); got != c.want {
			t.Errorf("contradicted(%s) by a container in state %q = %t, want %t", c.kind, c.state, got, c.want)
		}
	}
}

func TestEventsWithoutAPodGoToTheOwner(t *testing.T) {
	tr := newTracker()
	if _, _, known := tr.event(start, event{object: "u-c", pod: "", kind: stopped}); known {
		t.Error("an event of an unknown container is known")
	}
	tr.mark("u")
	read(t, tr, "u", start, seen("u", topic.ContainerRunning))
	if uid, _, known := tr.event(start, event{object: "u-c", pod: "", kind: stopped}); !known || uid != "u" {
		t.Errorf("the event of u's container went to %q", uid)
	}
}

func TestParallelIsBoundedButSlowPodsDontCount(t *testing.T) {
	tr := newTracker()
	for i := range parallel + 3 {
		tr.mark(string(rune('a' + i)))
	}
	for range parallel {
		if _, _, ok := tr.next(); !ok {
			t.Fatal("fewer readings than allowed")
		}
	}
	idle(t, tr)
	tr.lagging("a")
	tr.lagging("a")
	if _, _, ok := tr.next(); !ok {
		t.Error("a slow pod holds up others")
	}
	idle(t, tr)
	tr.done(start, "a", nothing("a"), nil) // slow: gives no place back
	idle(t, tr)
	tr.done(start, "b", nothing("b"), nil)
	if _, _, ok := tr.next(); !ok {
		t.Error("the end of a reading gives no place back")
	}
}

func TestRelistMarksWhatDiffers(t *testing.T) {
	tr := newTracker()
	for _, uid := range []string{"same", "old", "gone", "failed"} {
		tr.mark(uid)
		got, _, _ := tr.next()
		var err error
		if uid == "failed" {
			err = errors.New("no list")
		}
		at := start
		if uid == "old" {
			at = start.Add(-rereadAfter)
		}
		tr.done(at, got, seen(uid, ""), err)
	}
	if tr.complete() {
		t.Error("a relist that never was is complete")
	}
	listed := func(uid string) observe.Listed {
		box := &runtimeapi.PodSandbox{Id: uid + "-box", State: runtimeapi.PodSandboxState_SANDBOX_READY}
		return observe.Listed{Ref: topic.Ref{UID: uid}, Sandboxes: []*runtimeapi.PodSandbox{box}}
	}
	tr.relisted(start, []observe.Listed{listed("same"), listed("new"), listed("old"), listed("failed")})
	var marked []string
	for {
		uid, _, ok := tr.next()
		if !ok {
			break
		}
		if tr.complete() {
			t.Errorf("complete before %s was read", uid)
		}
		marked = append(marked, uid)
		if uid == "gone" {
			if out := tr.done(start, uid, nothing(uid), nil); !out.remove {
				t.Errorf("the end of pod gone gave %+v", out)
			}
			continue
		}
		tr.done(start, uid, seen(uid, ""), nil)
	}
	if want := []string{"failed", "gone", "new", "old"}; !slices.Equal(marked, want) {
		t.Errorf("marked %v, want %v", marked, want)
	}
	if !tr.complete() || tr.complete() {
		t.Error("a relist is complete once, after its last pod")
	}
}

func TestErrorsAreRetriedEverMoreSeldom(t *testing.T) {
	tr := newTracker()
	stuck := seen("u", topic.ContainerRunning)
	stuck.Errors = []string{"container app: hangs"}
	var pauses []time.Duration
	now := start
	tr.mark("u")
	for range 7 {
		out := read(t, tr, "u", now, stuck)
		pauses = append(pauses, out.wake)
		now = now.Add(out.wake)
		tr.woken(now, "u")
	}
	var want []time.Duration
	for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
		want = append(want, time.Duration(seconds)*time.Second)
	}
	if !slices.Equal(pauses, want) {
		t.Errorf("pauses %v, want %v", pauses, want)
	}
	if out := read(t, tr, "u", now, seen("u", topic.ContainerRunning)); out.wake != 0 || !out.publish {
		t.Errorf("a pod that is well again gave %+v", out)
	}
	if tr.pods["u"].errors != 0 {
		t.Error("old errors still count")
	}
}

func TestRetainedPodsThatAreGoneAreRemoved(t *testing.T) {
	tr := newTracker()
	tr.retained("u")
	if out := read(t, tr, "u", start, nothing("u")); !out.remove {
		t.Errorf("a retained pod that the runtime doesn't have gave %+v", out)
	}
	tr.event(start, event{object: "v-c", pod: "v", kind: started})
	if out := read(t, tr, "v", start, nothing("v")); out.remove || out.publish {
		t.Errorf("a pod of which nobody heard gave %+v", out)
	}
}

func TestDiffNamesEveryDifference(t *testing.T) {
	old := seen("u", topic.ContainerRunning)
	change := func(f func(*topic.PodObservation)) topic.PodObservation {
		s := seen("u", topic.ContainerRunning)
		f(&s)
		return s
	}
	for _, c := range []struct {
		name string
		new  topic.PodObservation
		want []string
	}{
		{"time only", change(func(s *topic.PodObservation) { s.At = start }), nil},
		{"exit", change(func(s *topic.PodObservation) {
			s.Containers[0].State, s.Containers[0].ExitCode, s.Containers[0].Reason = topic.ContainerExited, 137, "OOMKilled"
		}), []string{"container app u-c: running to exited with 137 (OOMKilled)"}},
		{"gone container", seen("u", ""), []string{"container app u-c: removed"}},
		{"sandbox", change(func(s *topic.PodObservation) { s.Sandboxes[0].Ready = false }), []string{"sandbox u-box: ready to not ready"}},
		{"address", change(func(s *topic.PodObservation) { s.Sandboxes[0].IPs = []string{"10.0.0.1"} }), []string{"sandbox u-box: addresses [] to [10.0.0.1]"}},
		{"new sandbox", change(func(s *topic.PodObservation) {
			s.Sandboxes = []topic.Sandbox{{ID: "0123456789abcdef"}}
		}), []string{"sandbox 0123456789abc: not ready", "sandbox u-box: removed"}},
		{"error", change(func(s *topic.PodObservation) { s.Errors = []string{"x"} }), []string{"can't be inspected: x"}},
		{"detail", change(func(s *topic.PodObservation) { s.Containers[0].Hash = "1" }), []string{"details"}},
	} {
		if got := Diff(old, c.new); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
