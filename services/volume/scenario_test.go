package volume

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/scenariotest"
)

// TestScenarios runs testdata: each file states a pod, its volumes and the time, and what is decided. "go test
// -rewrite" writes the decisions again; read the difference before you keep it. Times are durations since the start of
// the scenario.
//
//	pod       words: a lifecycle of pod.update, or "unknown" for a directory without one; "gone" (pod.update was
//	          removed), "disowned" (by every source), "binds=N", "cleaning-up", "cleaned-up", "retry=T", "problem=TEXT"
//	volumes   lines "NAME PHASE [dirty] [unmounting] [op=mount|unmount since=T alive=T] [refresh=T] [retry=T]
//	          [reason=TEXT] [problem=TEXT]"
//	fail      words: a volume's name, at=T, limit=D; says how long the pause is
//	decide    at=T
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	pod      *pod
	disowned bool
}

// begin is when a scenario begins.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "pod":
		s.setPod(t, strings.Fields(d.Input))
		return ""
	case "volumes":
		s.pod.volumes = nil
		for line := range strings.Lines(d.Input) {
			s.pod.volumes = append(s.pod.volumes, parseVolume(t, strings.Fields(line)))
		}
		return ""
	case "fail":
		return s.fail(t, d)
	case "decide":
		var at string
		d.ScanArgs(t, "at", &at)
		return s.decide(parseTime(t, at))
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (s *scenario) setPod(t *testing.T, words []string) {
	s.pod, s.disowned = &pod{}, false
	if words[0] != "unknown" {
		s.pod.update = topic.Pod{Pod: &corev1.Pod{}, Lifecycle: topic.Lifecycle(words[0])}
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "gone":
			s.pod.gone = true
		case "disowned":
			s.disowned = true
		case "binds":
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatal(err)
			}
			s.pod.binds = map[string]bool{}
			for i := range n {
				s.pod.binds[strconv.Itoa(i)] = true
			}
		case "cleaning-up":
			s.pod.cleaningUp = true
		case "cleaned-up":
			s.pod.cleanedUp = true
		case "retry":
			s.pod.retry.notBefore = parseTime(t, value)
		case "problem":
			s.pod.problem = value
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
}

func parseVolume(t *testing.T, words []string) *volume {
	v := &volume{spec: &corev1.Volume{Name: words[0]}, phase: topic.VolumePhase(words[1])}
	for _, word := range words[2:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "dirty":
			v.dirty = true
		case "unmounting":
			v.unmounting = true
		case "op":
			v.op = op(value)
		case "since":
			v.since = parseTime(t, value)
		case "alive":
			v.alive = parseTime(t, value)
		case "refresh":
			v.result.RefreshAt = parseTime(t, value)
		case "retry":
			v.retry.notBefore = parseTime(t, value)
		case "reason":
			v.reason = value
		case "problem":
			v.problem = value
		default:
			t.Fatalf("unknown word %q", word)
		}
	}
	return v
}

func parseTime(t *testing.T, text string) time.Time {
	return begin.Add(scenariotest.Duration(t, text))
}

// fail notes a failure of a volume.
func (s *scenario) fail(t *testing.T, d *datadriven.TestData) string {
	var at, limit string
	d.ScanArgs(t, "at", &at)
	var longest time.Duration
	if d.HasArg("limit") {
		d.ScanArgs(t, "limit", &limit)
		longest = parseTime(t, limit).Sub(begin)
	}
	v, now := s.pod.volume(d.CmdArgs[0].Key), parseTime(t, at)
	v.retry.fail(now, longest)
	return fmt.Sprintf("failure %d: not before %v\n", v.retry.failures, v.retry.notBefore.Sub(begin))
}

func (s *scenario) decide(now time.Time) string {
	var out strings.Builder
	stage := lifecycle(s.pod, s.disowned)
	fmt.Fprintf(&out, "the pod is %s\n", stage)
	for _, v := range s.pod.volumes {
		if what := v.next(s.pod, stage, now); what != opNone {
			fmt.Fprintf(&out, "%s %s\n", what, v.spec.Name)
		}
	}
	if s.pod.cleanUpNow(stage, now) {
		fmt.Fprintln(&out, "clean up what is left")
	}
	if at := s.pod.wakeAt(stage, now); !at.IsZero() {
		fmt.Fprintf(&out, "wake at %v\n", at.Sub(begin))
	}
	said := summary(s.pod)
	fmt.Fprintf(&out, "volume.state %s\n", said.Phase)
	if rest, ok := said.Volumes[remains]; ok {
		fmt.Fprintf(&out, "  %s: %s %s: %s\n", remains, rest.Phase, rest.Reason, rest.Message)
	}
	for _, v := range s.pod.volumes {
		is := said.Volumes[v.spec.Name]
		fmt.Fprintf(&out, "  %s: %s", v.spec.Name, is.Phase)
		if is.Message != "" {
			fmt.Fprintf(&out, " %s: %s", is.Reason, is.Message)
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}
