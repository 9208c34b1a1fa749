package lease

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/scenariotest"
)

// TestScenarios runs testdata: each file is the life of a daemon whose Node is registered at 0s. "go test -rewrite"
// writes the results again; read the difference before you keep it. All commands take at=T (default 0s).
//
//	daemons     health.*: lines "NAME STATE [MESSAGE]" of the vital daemons, "all STATE" for all of them, or "NAME gone"
//	runtime     node.runtime: "up", "down MESSAGE", "unready REASON" or "no-network REASON"
//	pressure    node.pressure: "memory", "disk" and "pid", as far as there is any
//	shutdown    node.shutdown: "active", or nothing
//	look        compares the Node with the one that the API server has: shows the conditions that differ and whether they are written
//	            now; what is written is what the API server has then
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{Service{
			env: daemon.Env{Config: testConfig()}, words: map[string]topic.DaemonHealth{},
			facts: Facts{Machine: testMachine(), Health: map[string]topic.DaemonHealth{}, Now: t0},
		}}
		s.node = s.wanted()
		s.writes.computed, s.writes.reported = t0, t0
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct{ Service }

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	at := "0s"
	for _, a := range d.CmdArgs {
		at = a.Vals[0]
	}
	now := t0.Add(scenariotest.Duration(t, at))
	switch d.Cmd {
	case "daemons":
		for line := range strings.Lines(d.Input) {
			s.daemon(strings.Fields(line), now)
		}
	case "runtime":
		s.setRuntime(runtimeOf(strings.Fields(d.Input)), now)
	case "shutdown":
		s.facts.Shutdown = &topic.Shutdown{Active: strings.TrimSpace(d.Input) == "active"}
	case "pressure":
		s.facts.Pressure = &topic.Pressure{
			Memory: strings.Contains(d.Input, "memory"), Disk: strings.Contains(d.Input, "disk"),
			PID: strings.Contains(d.Input, "pid"),
		}
	case "look":
		return s.look(now)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func (s *scenario) daemon(w []string, now time.Time) {
	if w[0] == "all" {
		for _, name := range vital {
			s.daemon(append([]string{name}, w[1:]...), now)
		}
		return
	}
	if w[1] == "gone" {
		s.setHealth(w[0], nil)
		return
	}
	h := topic.DaemonHealth{State: topic.HealthState(w[1]), Message: strings.Join(w[2:], " "), Beat: now, Since: now}
	if old, known := s.facts.Health[w[0]]; known && old.State == h.State {
		h.Since = old.Since
	}
	s.heard(w[0], h, now)
}

func runtimeOf(w []string) *topic.Runtime {
	r := testRuntime()
	switch w[0] {
	case "down":
		r.Reachable, r.Message = false, strings.Join(w[1:], " ")
	case "unready":
		r.RuntimeReady = topic.RuntimeCondition{Reason: w[1]}
	case "no-network":
		r.NetworkReady = topic.RuntimeCondition{Reason: w[1]}
	}
	return r
}

// look is what evaluate does once there is a Node.
func (s *scenario) look(now time.Time) string {
	s.facts.Now = now
	wanted := s.wanted()
	var text strings.Builder
	for _, c := range wanted.Status.Conditions {
		old := condition(s.node.Status.Conditions, c.Type)
		if old == nil || conditionsDiffer([]corev1.NodeCondition{*old}, []corev1.NodeCondition{c}) {
			fmt.Fprintf(&text, "%s=%s since %s: %s: %s\n", c.Type, c.Status, c.LastTransitionTime.Sub(t0), c.Reason, c.Message)
		}
	}
	if !s.due(wanted, now) {
		return cmp.Or(text.String(), "no change\n") + "not written yet\n"
	}
	s.node, s.writes.computed, s.writes.reported = wanted, now, now
	return cmp.Or(text.String(), "no change\n") + "written\n"
}
