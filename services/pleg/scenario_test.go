package pleg

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/observe"
	"kubelot.dev/daemon/scenariotest"
)

// TestDiff runs testdata/diff.txt: observations of a pod in YAML, and what has changed from each to the next. "go
// test -rewrite" writes the changes; read the difference before you keep it.
func TestDiff(t *testing.T) {
	var old topic.PodObservation
	datadriven.RunTest(t, "testdata/diff.txt", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd != "seen" {
			t.Fatalf("unknown command %q", d.Cmd)
		}
		var now topic.PodObservation
		if err := yaml.UnmarshalStrict([]byte(d.Input), &now); err != nil {
			t.Fatal(err)
		}
		changes := Diff(old, now)
		old = now
		return strings.Join(changes, "\n")
	})
}

// TestScenarios runs testdata/tracker: each file is the life of a tracker. The answers are the readings that begin, and
// what the tracker states after each. "go test -rewrite" writes the answers; read the difference before you keep it.
//
//	runtime     what the runtime has from now on: lines "POD [ID=STATE ...] [hangs] [fails] [error=TEXT]". A sandbox is
//	            ready or notready, a container is created, running, exited or unknown. A reading takes no time, but for
//	            that of a pod that hangs: it ends when the pod doesn't hang any more, and shows what there was when it
//	            began. A pod that fails can't be read at all; one with an error is read in part
//	events      lines "ID created|started|stopped|deleted [pod=POD] [sandbox]"
//	relist      compares what is known with the lists of what the runtime has
//	retained    pods that an earlier pleg has published
//	wait D      lets time pass; an answer begins with the time since then
//	known       the pods that the tracker knows, with their objects
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata/tracker", func(t *testing.T, path string) {
		s := &scenario{
			tracker: newTracker(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
			runtime: map[string]reading{}, stated: map[string]topic.PodObservation{},
		}
		datadriven.RunTest(t, path, s.run)
	})
}

// scenario does what Service does around the tracker: it has the time, the timers, the readings under way, and what is
// on the bus.
type scenario struct {
	tracker *tracker
	// now is the time, began that at which the command began.
	now, began time.Time
	// runtime is what a reading that begins now will show.
	runtime map[string]reading
	// open are the readings under way, the oldest first.
	open   []*reading
	timers []timer
	// stated are the pods on the bus.
	stated map[string]topic.PodObservation
	answer strings.Builder
}

// reading is what the reading of a pod shows, and whether it ends and succeeds.
type reading struct {
	seen         topic.PodObservation
	hangs, fails bool
}

type timer struct {
	at   time.Time
	fire func()
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	s.answer.Reset()
	s.began = s.now
	switch d.Cmd {
	case "runtime":
		for line := range strings.Lines(d.Input) {
			words := strings.Fields(line)
			s.runtime[words[0]] = parseReading(t, words[0], words[1:])
		}
		s.endReadings(t)
	case "events":
		for line := range strings.Lines(d.Input) {
			s.event(parseEvent(t, strings.Fields(line)))
			s.startReadings(t)
		}
	case "relist":
		s.tracker.relisted(s.now, s.lists())
		s.endRelist()
	case "retained":
		for _, uid := range strings.Fields(d.Input) {
			s.tracker.retained(uid)
		}
	case "wait":
		s.wait(t, scenariotest.Duration(t, d.CmdArgs[0].Key))
	case "known":
		s.known(t)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	s.startReadings(t)
	return s.answer.String()
}

func parseReading(t *testing.T, uid string, words []string) reading {
	t.Helper()
	r := reading{seen: topic.PodObservation{
		Ref: topic.Ref{UID: uid}, Sandboxes: []topic.Sandbox{}, Containers: []topic.Container{},
	}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case word == "hangs":
			r.hangs = true
		case word == "fails":
			r.fails = true
		case key == "error":
			r.seen.Errors = append(r.seen.Errors, value)
		case value == "ready" || value == "notready":
			r.seen.Sandboxes = append(r.seen.Sandboxes, topic.Sandbox{ID: key, Ready: value == "ready"})
		default:
			c := topic.Container{ID: key, Name: strings.TrimRight(key, "0123456789"), State: topic.ContainerState(value)}
			if c.State == topic.ContainerExited {
				c.Reason = "Completed"
			}
			if _, known := listedStates[c.State]; !known {
				t.Fatalf("unknown word %q", word)
			}
			r.seen.Containers = append(r.seen.Containers, c)
		}
	}
	return r
}

// listedStates are the states of containers as the runtime lists them.
var listedStates = map[topic.ContainerState]runtimeapi.ContainerState{
	topic.ContainerCreated: runtimeapi.ContainerState_CONTAINER_CREATED,
	topic.ContainerRunning: runtimeapi.ContainerState_CONTAINER_RUNNING,
	topic.ContainerExited:  runtimeapi.ContainerState_CONTAINER_EXITED,
	topic.ContainerUnknown: runtimeapi.ContainerState_CONTAINER_UNKNOWN,
}

// lists are the lists of what the runtime has. They show a pod that can't be read, too.
func (s *scenario) lists() []observe.Listed {
	var listed []observe.Listed
	for _, uid := range slices.Sorted(maps.Keys(s.runtime)) {
		seen := s.runtime[uid].seen
		if len(seen.Sandboxes)+len(seen.Containers) == 0 {
			continue
		}
		l := observe.Listed{Ref: seen.Ref}
		for _, sandbox := range seen.Sandboxes {
			state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			if sandbox.Ready {
				state = runtimeapi.PodSandboxState_SANDBOX_READY
			}
			l.Sandboxes = append(l.Sandboxes, &runtimeapi.PodSandbox{Id: sandbox.ID, State: state})
		}
		for _, c := range seen.Containers {
			l.Containers = append(l.Containers, &runtimeapi.Container{Id: c.ID, State: listedStates[c.State]})
		}
		listed = append(listed, l)
	}
	return listed
}

func parseEvent(t *testing.T, words []string) event {
	t.Helper()
	kind, known := runtimeapi.ContainerEventType_value["CONTAINER_"+strings.ToUpper(words[1])+"_EVENT"]
	if !known {
		t.Fatalf("unknown event %q", words[1])
	}
	e := event{object: words[0], kind: runtimeapi.ContainerEventType(kind)}
	for _, word := range words[2:] {
		uid, isPod := strings.CutPrefix(word, "pod=")
		switch {
		case isPod:
			e.pod = uid
		case word == "sandbox":
			e.sandbox = true
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return e
}

// say adds a line to the answer.
func (s *scenario) say(format string, args ...any) {
	if after := s.now.Sub(s.began); after > 0 {
		fmt.Fprintf(&s.answer, "%v: ", after)
	}
	fmt.Fprintf(&s.answer, format+"\n", args...)
}

func (s *scenario) event(e event) {
	uid, pause, known := s.tracker.event(s.now, e)
	if !known {
		s.say("no pod is known of %s", e.object)
		return
	}
	if pause > 0 {
		s.say("%s waits %v", uid, pause)
		s.wakeAfter(uid, pause)
	}
}

func (s *scenario) after(pause time.Duration, fire func()) {
	s.timers = append(s.timers, timer{s.now.Add(pause), fire})
}

func (s *scenario) wakeAfter(uid string, pause time.Duration) {
	s.after(pause, func() { s.tracker.woken(s.now, uid) })
}

// wait lets time pass, from timer to timer.
func (s *scenario) wait(t *testing.T, pause time.Duration) {
	until := s.now.Add(pause)
	for {
		slices.SortStableFunc(s.timers, func(a, b timer) int { return a.at.Compare(b.at) })
		if len(s.timers) == 0 || s.timers[0].at.After(until) {
			s.now = until
			return
		}
		next := s.timers[0]
		s.timers = s.timers[1:]
		s.now = next.at
		next.fire()
		s.startReadings(t)
	}
}

// startReadings begins what the tracker wants to be read, and ends what doesn't hang.
func (s *scenario) startReadings(t *testing.T) {
	for {
		uid, earlier, ok := s.tracker.beginNext()
		if !ok {
			return
		}
		s.say("read %s", uid)
		if slices.ContainsFunc(s.open, func(r *reading) bool { return r.seen.UID == uid }) {
			t.Errorf("%s is read twice at the same time", uid)
		}
		// A reading leaves out what can't have changed since the earlier one, which must be what is on the bus.
		if stated, isStated := s.stated[uid]; isStated != (earlier != nil) || (isStated && Diff(stated, *earlier) != nil) {
			t.Errorf("%s is read as the successor of %+v, stated is %+v (%t)", uid, earlier, stated, isStated)
		}
		r := s.runtime[uid]
		r.seen.UID = uid
		s.open = append(s.open, &r)
		s.after(slowAfter, func() {
			if slices.Contains(s.open, &r) {
				s.say("%s is slow", uid)
				s.tracker.lagging(uid)
			}
		})
		s.endReadings(t)
	}
}

// endReadings ends the readings of pods that don't hang.
func (s *scenario) endReadings(t *testing.T) {
	for _, r := range slices.Clone(s.open) {
		if !s.runtime[r.seen.UID].hangs {
			s.open = slices.DeleteFunc(s.open, func(o *reading) bool { return o == r })
			s.end(t, r)
		}
	}
}

func (s *scenario) end(t *testing.T, r *reading) {
	uid := r.seen.UID
	if r.fails {
		s.tracker.done(s.now, uid, topic.PodObservation{}, errors.New("the runtime doesn't list the pod"))
		s.say("%s can't be read", uid)
		return
	}
	out := s.tracker.done(s.now, uid, r.seen, nil)
	text := "nothing new of " + uid
	switch {
	case out.publish && out.remove:
		t.Errorf("%s is published and removed: %+v", uid, out)
	case out.publish:
		text = "publish " + uid + ": " + strings.Join(out.changes, "; ")
		s.stated[uid] = r.seen
	case out.remove:
		text = "remove " + uid
		delete(s.stated, uid)
	}
	if out.wake > 0 {
		text += fmt.Sprintf(", again in %v", out.wake)
		s.wakeAfter(uid, out.wake)
	}
	s.say("%s", text)
	s.endRelist()
}

func (s *scenario) endRelist() {
	if s.tracker.endRelist() {
		s.say("the relist is complete")
	}
}

func (s *scenario) known(t *testing.T) {
	objects := map[string][]string{}
	for uid := range s.tracker.pods {
		objects[uid] = nil
	}
	for id, uid := range s.tracker.owner {
		if s.tracker.pods[uid] == nil {
			t.Errorf("%s is kept as an object of %s, which isn't known", id, uid)
		}
		objects[uid] = append(objects[uid], id)
	}
	for _, uid := range slices.Sorted(maps.Keys(objects)) {
		slices.Sort(objects[uid])
		s.say("%s", strings.Join(append([]string{uid + ":"}, objects[uid]...), " "))
	}
}
