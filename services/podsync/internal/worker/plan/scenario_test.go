package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan/plantest"
)

// TestScenarios runs testdata: each file states a pod, what the runtime reports and what the worker knows, and the
// plan that follows. "go test -rewrite" writes the plans; read the difference before you keep it.
//
//	pod       a PodSpec in YAML
//	runtime   lines "sandbox ID key=value..." and "container ID name=NAME key=value...", newest first, "error TEXT..."
//	facts     lines "volumes", "image NAME", "busy NAME", "failure NAME reason=R retry=T",
//	          "probe NAME KIND ID ok|failed [T]", "replaced ID", "stopped SANDBOX", "hook ID", "settling",
//	          "resize ID=CPU...", "resize-waits",
//	          "base NAME RESTARTS", "hash HASH", "longest-backoff D", "allocating WHY...", "cpus NAME LIST",
//	          "has-cpus ID LIST"
//	plan      at=T, and for a pod that is to stop: stop=T grace=D
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	pod   *corev1.Pod
	obs   topic.PodObservation
	facts Facts
	runs  map[string]RunFacts
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "pod":
		s.pod = plantest.Pod(t, d.Input)
		return ""
	case "runtime":
		s.obs = plantest.Observation(t, d.Input)
		return ""
	case "facts":
		s.facts = Facts{
			Containers: map[string]ContainerFacts{}, Failures: map[string]Failure{},
			SandboxesStopped: map[string]bool{}, MaxBackoff: 5 * time.Minute,
		}
		s.runs = map[string]RunFacts{}
		for line := range strings.Lines(d.Input) {
			s.fact(t, strings.Fields(line))
		}
		return ""
	case "plan":
		return s.plan(t, d)
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func (s *scenario) fact(t *testing.T, words []string) {
	switch words[0] {
	case "volumes":
		s.facts.VolumesMounted = true
	case "image":
		for _, name := range words[1:] {
			s.known(name, func(c *ContainerFacts) { c.Image = true })
		}
	case "settling":
		s.facts.Settling = true
	case "allocating":
		s.facts.Allocating, s.facts.AllocatingWhy = true, strings.Join(words[1:], " ")
	case "cpus":
		s.known(words[1], func(c *ContainerFacts) { c.CPUs = words[2] })
	case "memory":
		s.known(words[1], func(c *ContainerFacts) { c.MemoryNodes = words[2] })
	case "has-cpus":
		run := s.runs[words[1]]
		run.CPUs = words[2]
		s.runs[words[1]] = run
	case "busy":
		s.known(words[1], func(c *ContainerFacts) { c.Busy = true })
	case "stopped":
		s.facts.SandboxesStopped[words[1]] = true
	case "hook":
		s.runs[words[1]] = RunFacts{Replaced: s.runs[words[1]].Replaced, HookRan: true}
	case "replaced":
		s.runs[words[1]] = RunFacts{
			Replaced: true, Resized: slices.Contains(words, "resized"), HookRan: s.runs[words[1]].HookRan,
		}
	case "base":
		s.known(words[1], func(c *ContainerFacts) { c.BackoffBase = plantest.Number(t, words[2]) })
	case "longest-backoff":
		s.facts.MaxBackoff = plantest.Duration(t, words[1])
	case "resize":
		s.facts.Resize = &topic.Resize{Before: map[string]corev1.ResourceRequirements{}}
		for _, word := range words[1:] {
			id, cpu, _ := strings.Cut(word, "=")
			s.facts.Resize.Before[id] = corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}
		}
	case "resize-waits":
		s.facts.ResizeWaits = true
	case "hash":
		s.facts.Hash = func(*corev1.Container) string { return words[1] }
	case "failure":
		o := plantest.Options(words[2:])
		name := words[1]
		switch name {
		case "sandbox":
			name = ""
		case "resize":
			name = Action{Kind: ResizePod}.Key()
		}
		s.facts.Failures[name] = Failure{Reason: o["reason"], Message: o["message"], RetryAt: plantest.At(t, o["retry"])}
	case "probe":
		s.known(words[1], func(c *ContainerFacts) {
			if c.Probes == nil {
				c.Probes = map[string]topic.Probe{}
			}
			verdict := topic.Probe{ContainerID: words[3], Success: words[4] == "ok"}
			if len(words) > 5 {
				verdict.Since = plantest.At(t, words[5])
			}
			c.Probes[words[2]] = verdict
		})
	default:
		t.Fatalf("unknown fact %v", words)
	}
}

func (s *scenario) plan(t *testing.T, d *datadriven.TestData) string {
	var now, stop, grace string
	d.ScanArgs(t, "at", &now)
	desired := Desired{Pod: s.pod}
	if d.HasArg("stop") {
		d.ScanArgs(t, "stop", &stop)
		d.ScanArgs(t, "grace", &grace)
		desired.Stop, desired.StopSince, desired.StopMessage = true, plantest.At(t, stop), "Stopping container"
		desired.Grace = plantest.Duration(t, grace)
	}
	for i := range s.obs.Containers {
		s.known(s.obs.Containers[i].Name, func(c *ContainerFacts) { c.Runs = s.runs })
	}
	return render(Make(desired, s.obs, s.facts, plantest.At(t, now)))
}

// known changes what is known of a container.
func (s *scenario) known(name string, change func(*ContainerFacts)) {
	if s.facts.Containers == nil {
		s.facts.Containers = map[string]ContainerFacts{}
	}
	c := s.facts.Containers[name]
	change(&c)
	s.facts.Containers[name] = c
}

func render(p Plan) string {
	var b strings.Builder
	for _, a := range p.Actions {
		fmt.Fprintf(&b, "%s", a.Kind)
		for _, field := range [][2]string{{"container", a.Container}, {"id", a.ID}, {"sandbox", a.SandboxID}} {
			if field[1] != "" {
				fmt.Fprintf(&b, " %s=%s", field[0], field[1])
			}
		}
		if a.Kind == CreateSandbox || a.Kind == StartContainer {
			fmt.Fprintf(&b, " attempt=%d", a.Attempt)
		}
		if a.Kind == StopContainer || a.Kind == RunPreStop {
			fmt.Fprintf(&b, " grace=%s", a.Grace)
		}
		if a.CPUs != "" {
			fmt.Fprintf(&b, " cpus=%s", a.CPUs)
		}
		if a.MemoryNodes != "" {
			fmt.Fprintf(&b, " memory=%s", a.MemoryNodes)
		}
		if a.HookRan {
			b.WriteString(" hook ran")
		}
		if a.Message != "" {
			fmt.Fprintf(&b, " (%s)", a.Message)
		}
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(p.Waiting)) {
		fmt.Fprintf(&b, "waiting %s: %s\n", name, strings.TrimSpace(p.Waiting[name].Reason+" "+p.Waiting[name].Message))
	}
	if !p.WakeAt.IsZero() {
		fmt.Fprintf(&b, "wake at %s\n", p.WakeAt.Sub(plantest.Epoch))
	}
	if p.Complete {
		b.WriteString("complete\n")
	}
	if p.Stopped {
		b.WriteString("stopped\n")
	}
	if p.Released {
		b.WriteString("released\n")
	}
	for name, count := range p.NewBackoffBase {
		fmt.Fprintf(&b, "back-off of %s starts over at %d\n", name, count)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
