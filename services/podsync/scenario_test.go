package podsync

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/admission/allocation"
)

// TestScenarios runs testdata: each file is a life of the dispatcher on a fake runtime, told by what it is given. After
// each command it says what has become of the pods. "go test -rewrite" writes that; read the difference before you keep
// it.
//
//	start    from=(SOURCE,...) begins a run, after the end of an earlier one
//	node     pods=N uid=UID states the Node; without uid it is registered as node-1, uid=none is the node's own draft
//	deliver  from=SOURCE and a list of Pods in YAML, all that it wants; a pod's UID is its name unless it says otherwise
//	stray    NAME makes a sandbox that nobody has asked for
//	stubborn NAME has the containers of the pod ignore the signal to stop
//	evict    NAME as gc asks for it
//	pass     for=T lets time pass
//
// The answer has a line for each pod on the bus, one for each sandbox of a pod that isn't, the Events since the last
// command, and the daemon's health where it has changed.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			inBubble(t, func(b *bed) {
				s := &scenario{bed: b, stop: func() {}}
				datadriven.RunTest(b.t, file, s.run)
			})
		})
	}
}

type scenario struct {
	*bed
	stop   func()
	told   int    // Events that were printed
	health string // as it was printed last
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "start":
		var sources []topic.Source
		for _, name := range values(d, "from") {
			sources = append(sources, topic.Source(name))
		}
		s.stop()
		s.stop = s.start(sources...)
	case "node":
		var pods int64
		uid := "node-1"
		d.ScanArgs(t, "pods", &pods)
		d.MaybeScanArgs(t, "uid", &uid)
		if uid == "none" {
			uid = ""
		}
		s.nodeOf(types.UID(uid), pods)
	case "deliver":
		s.deliver(topic.Source(values(d, "from")[0]), podsIn(t, d.Input)...)
	case "stray":
		s.orphan(d.CmdArgs[0].Key, d.CmdArgs[0].Key)
		return ""
	case "stubborn":
		s.stubborn(d.CmdArgs[0].Key)
		return ""
	case "evict":
		name := d.CmdArgs[0].Key
		if _, err := s.evict(eviction(name, name, 1)); err != nil {
			return err.Error()
		}
	case "pass":
		took, err := time.ParseDuration(values(d, "for")[0])
		if err != nil {
			t.Fatal(err)
		}
		s.pass(took)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	s.settle()
	return s.outcome()
}

func values(d *datadriven.TestData, key string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return []string{""}
}

// podsIn reads pods. What isn't said of them is as in pod.
func podsIn(t *testing.T, text string) []*corev1.Pod {
	t.Helper()
	var list []*corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	for i, p := range list {
		whole := pod(p.Name, p.Name)
		if p.UID == "" {
			p.UID = whole.UID
		}
		p.Namespace = whole.Namespace
		if p.Spec.Containers == nil {
			p.Spec.Containers = whole.Spec.Containers
		}
		p.Spec.Containers[0].Name, p.Spec.Containers[0].Image = "app", testImage
		p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = whole.Spec.RestartPolicy,
			whole.Spec.TerminationGracePeriodSeconds
		list[i] = p
	}
	return list
}

// stubborn has the containers of a pod ignore the signal to stop.
func (b *bed) stubborn(name string) {
	b.t.Helper()
	list, err := b.client.ListContainers(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range list {
		if c.GetLabels()["io.kubernetes.pod.name"] == name {
			b.fake.Stubborn(c.GetId())
		}
	}
}

// outcome is what has become of the pods.
func (s *scenario) outcome() string {
	s.t.Helper()
	pods, err := topic.PodUpdate.Read(s.t.Context(), s.others)
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		lines = append(lines, s.podLine(uid, pods[uid]))
	}
	sandboxes, err := s.client.ListPodSandbox(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, sandbox := range sandboxes {
		if uid := sandbox.GetMetadata().GetUid(); pods[uid].Pod == nil {
			lines = append(lines, fmt.Sprintf("%s: a sandbox only", uid))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lines = append(lines, eventLines(s.events[s.told:])...)
	s.told = len(s.events)
	if health := strings.TrimSpace(string(s.state) + " " + s.message); health != s.health {
		s.health = health
		lines = append(lines, "health "+health)
	}
	return strings.Join(lines, "\n")
}

// eventLines are Events without those of each pod's way, sorted: workers report side by side.
func eventLines(events []topic.Event) []string {
	var lines []string
	for _, e := range events {
		switch e.Reason {
		case "Pulling", "Pulled", "Created", "Started", "Killing", "MissingClusterDNS":
		default:
			lines = append(lines, fmt.Sprintf("event %s %s: %s", e.Name, e.Reason, e.Message))
		}
	}
	slices.Sort(lines)
	return lines
}

// podLine describes a pod on the bus: its lifecycle, its phase, and the CPU that it holds where it asks for some.
func (s *scenario) podLine(uid string, p topic.Pod) string {
	status, _ := get(s.bed, topic.StatusPatch, uid)
	line := fmt.Sprintf("%s: %s, %s", uid, p.Lifecycle, status.Status.Phase)
	if status.Status.Reason != "" {
		line += fmt.Sprintf(" (%s: %s)", status.Status.Reason, strings.TrimSpace(status.Status.Message))
	}
	if has := allocation.Of(p.Pod, "app"); has != nil && !has.Requests.Cpu().IsZero() {
		line += ", holds " + has.Requests.Cpu().String()
	}
	for _, c := range status.Status.Conditions {
		if c.Type == corev1.PodResizePending {
			line += fmt.Sprintf(", its resize waits (%s: %s)", c.Reason, c.Message)
		}
	}
	return line
}
