package podstatus

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/plan/plantest"
)

// TestScenarios runs testdata: a pod, what the runtime reports, what was known before, and the status that follows.
//
//	pod       a PodSpec in YAML
//	runtime   as in the plan's scenarios
//	previous  a PodStatus in YAML
//	status    waiting=(name,reason) busy=name ending ended fail rejected reason=R
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		in := Input{Node: Node{HostIPs: []string{"192.0.2.1"}}, StartTime: plantest.Epoch, QOS: corev1.PodQOSBestEffort}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "pod":
				in.Pod, in.Previous = plantest.Pod(t, d.Input), corev1.PodStatus{}
			case "runtime":
				in.Obs = plantest.Observation(t, d.Input)
			case "previous":
				in.Previous = corev1.PodStatus{}
				if err := yaml.UnmarshalStrict([]byte(d.Input), &in.Previous); err != nil {
					t.Fatal(err)
				}
			case "status":
				return render(Compute(with(d, in)))
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			return ""
		})
	})
}

func with(d *datadriven.TestData, in Input) Input {
	in.Ending, in.Ended, in.Fail = d.HasArg("ending") || d.HasArg("ended"), d.HasArg("ended"), d.HasArg("fail")
	in.Rejected = d.HasArg("rejected")
	in.Waiting, in.Busy = map[string]plan.Waiting{}, map[string]bool{}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "waiting":
			in.Waiting[arg.Vals[0]] = plan.Waiting{Reason: arg.Vals[1]}
		case "busy":
			in.Busy[arg.Vals[0]] = true
		case "reason":
			in.Reason = arg.Vals[0]
		}
	}
	return in
}

func render(s corev1.PodStatus) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", s.Phase)
	if s.Reason != "" {
		fmt.Fprintf(&b, " (%s)", s.Reason)
	}
	if s.PodIP != "" {
		fmt.Fprintf(&b, " at %s", s.PodIP)
	}
	for _, c := range s.Conditions {
		fmt.Fprintf(&b, ", %s=%s", c.Type, c.Status)
	}
	b.WriteByte('\n')
	for _, list := range [][]corev1.ContainerStatus{
		s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses,
	} {
		for _, c := range list {
			fmt.Fprintf(&b, "%s: %s, restarts %d", c.Name, state(c.State), c.RestartCount)
			if c.LastTerminationState.Terminated != nil {
				fmt.Fprintf(&b, ", last %s", state(c.LastTerminationState))
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("terminated %d %s %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.ContainerID)
	case s.Waiting != nil:
		return "waiting " + s.Waiting.Reason
	}
	return "nothing"
}
