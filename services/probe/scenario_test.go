package probe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/scenariotest"
	"kubelot.dev/services/probe/internal/check"
)

// epoch is the time 0s of scenarios.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata: each file is the life of a daemon with two cores. "go test -rewrite" writes the results
// again; read the difference before you keep it. All commands but the last two take uid=UID (default u1) and at=T
// (default 0s).
//
//	pod [lifecycle=L]    pod.update: a PodSpec in YAML, or "gone"; status=STARTED-ID says that the pod's status has that container as started;
//	                     poststart=NAME that the container's hook runs
//	pods n=N period=P    N pods u1, u2 ... whose container runs since 0s, with a readiness probe that had its first verdict before
//	runtime              pleg.event: lines "sandbox ID [IP]", "container ID NAME STATE [since=T]", newest first, "error TEXT", or "gone"
//	node                 node.object: the node's address
//	retained             lines "CONTAINER KIND ID ok|failed" of probe.result, before the start
//	sync                 all that the bus has retained is known
//	run at=T             begins what is due
//	end at=T             lines "[UID] CONTAINER KIND ok|failed|warning|error|away [OUTPUT]": ends of runs; "all" ends all with success
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{tracker: newTracker(2), specs: map[string]*corev1.Pod{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	tracker *tracker
	specs   map[string]*corev1.Pod
	runs    []*probe
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{"uid": "u1", "at": "0s"}
	for _, a := range d.CmdArgs {
		args[a.Key] = a.Vals[0]
	}
	uid, now := args["uid"], at(t, args["at"])
	switch d.Cmd {
	case "pod":
		s.pod(t, d.Input, args, now)
	case "pods":
		s.pods(t, args)
	case "runtime":
		if d.Input == "gone" {
			s.tracker.dropSeen(now, uid)
		} else {
			s.tracker.setSeen(now, uid, observation(t, uid, d.Input))
		}
	case "node":
		s.tracker.setNode(now,
			corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "n"},
				{Type: corev1.NodeInternalIP, Address: d.Input},
			}}})
	case "retained":
		for line := range strings.Lines(d.Input) {
			w := strings.Fields(line)
			s.tracker.retained(slot{w[0], w[1]}.key(uid), topic.Probe{ContainerID: w[2], Success: w[3] == "ok"})
		}
	case "sync":
		s.tracker.sync(now)
	case "run":
		return s.next(now) + s.effects()
	case "end":
		for line := range strings.Lines(d.Input) {
			s.end(t, strings.Fields(line), now)
		}
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return s.effects()
}

func (s *scenario) pod(t *testing.T, text string, args map[string]string, now time.Time) {
	uid := args["uid"]
	if text == "gone" {
		s.tracker.dropPod(now, uid)
		return
	}
	pod := s.specs[uid]
	if text != "" || pod == nil {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
		if err := yaml.UnmarshalStrict([]byte(text), &pod.Spec); err != nil {
			t.Fatal(err)
		}
		s.specs[uid] = pod
	}
	s.tracker.setPod(now, uid, topic.Pod{
		Pod: pod, Lifecycle: topic.Lifecycle(cmp.Or(args["lifecycle"], string(topic.Syncing))),
		StartedBefore: strings.Fields(args["started"]), PostStart: strings.Fields(args["poststart"]),
	})
}

func (s *scenario) pods(t *testing.T, args map[string]string) {
	n, err := strconv.Atoi(args["n"])
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		uid, id := fmt.Sprintf("u%d", i+1), fmt.Sprintf("a%02d", i+1)
		s.pod(t, fmt.Sprintf("containers: [{name: app, readinessProbe: {exec: {command: [a]}, periodSeconds: %s}}]",
			args["period"]), map[string]string{"uid": uid}, epoch)
		s.tracker.retained(slot{"app", topic.ProbeReadiness}.key(uid), topic.Probe{ContainerID: id, Success: true})
		s.tracker.setSeen(epoch, uid, observation(t, uid, "container "+id+" app running"))
	}
}

func observation(t *testing.T, uid, text string) topic.PodObservation {
	seen := topic.PodObservation{Ref: topic.Ref{UID: uid}}
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		switch w[0] {
		case "sandbox":
			seen.Sandboxes = append(seen.Sandboxes, topic.Sandbox{ID: w[1], Ready: true, IPs: w[2:]})
		case "container":
			c := topic.Container{ID: w[1], Name: w[2], State: topic.ContainerState(w[3]), SandboxID: "s0", StartedAt: epoch}
			if len(w) > 4 {
				c.StartedAt = at(t, strings.TrimPrefix(w[4], "since="))
			}
			seen.Containers = append(seen.Containers, c)
		case "error":
			seen.Errors = append(seen.Errors, line)
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	return seen
}

func at(t *testing.T, text string) time.Time {
	return epoch.Add(scenariotest.Duration(t, text))
}

// next begins what is due.
func (s *scenario) next(now time.Time) string {
	begun, wake := s.tracker.next(now)
	var out strings.Builder
	for _, p := range begun {
		fmt.Fprintf(&out, "run %s %s %s %s", p.ref.UID, p.container, p.kind, p.id)
		if !p.exec() {
			fmt.Fprintf(&out, " at %s", p.podIP)
		}
		out.WriteByte('\n')
	}
	s.runs = append(s.runs, begun...)
	if wake.IsZero() {
		return out.String() + "nothing else\n"
	}
	return out.String() + fmt.Sprintf("wake at %s\n", wake.Sub(epoch).Round(time.Millisecond))
}

// end ends a run.
func (s *scenario) end(t *testing.T, words []string, now time.Time) {
	if words[0] == "all" {
		for _, p := range s.runs {
			s.tracker.done(now, p, check.Result{Success: true}, nil)
		}
		s.runs = nil
		return
	}
	uid := "u1"
	if strings.HasPrefix(words[0], "u") {
		uid, words = words[0], words[1:]
	}
	i := slices.IndexFunc(s.runs, func(p *probe) bool {
		return p.ref.UID == uid && p.container == words[0] && p.kind == words[1]
	})
	if i < 0 {
		t.Fatalf("%s isn't under way", words)
	}
	p := s.runs[i]
	s.runs = slices.Delete(s.runs, i, i+1)
	result, err := check.Result{
		Success: words[2] == "ok" || words[2] == "warning", Warning: words[2] == "warning",
		Output: strings.Join(words[3:], " "),
	}, error(nil)
	switch words[2] {
	case "error":
		err = errors.New(result.Output)
	case "away":
		err = check.RuntimeError{Cause: errors.New(result.Output)}
	}
	s.tracker.done(now, p, result, err)
}

func (s *scenario) effects() string {
	out := s.tracker.take()
	var lines []string
	for _, c := range out.verdicts {
		if v := c.verdict; v == nil {
			lines = append(lines, "tombstone "+c.key)
		} else {
			lines = append(lines, strings.TrimSpace(fmt.Sprintf("verdict %s %s success=%v %s", c.key, v.ContainerID,
				v.Success, v.Message)))
		}
	}
	for _, ref := range out.gone {
		lines = append(lines, "gone "+ref.UID)
	}
	slices.Sort(lines)
	for _, e := range out.events {
		lines = append(lines, fmt.Sprintf("event %s %s %s: %s", e.Type, e.Reason, e.FieldPath, e.Message))
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
