package container

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/scenariotest"
)

// epoch is the time 0s of scenarios.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// TestScenarios runs testdata. "go test -rewrite" writes the results again; read the difference before you keep it.
//
//	pick at=T [per=N] [total=N] [age=D] [squeeze]   lines "pod UID wanted|ended", "sandbox ID UID ready|notready at=T [attempt=N]",
//	                                                "container ID UID NAME SANDBOX STATE at=T [restarts=N]"
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) { datadriven.RunTest(t, path, run) })
}

func run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{"at": "1h", "per": "1", "total": "-1", "age": "0s"}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(append(a.Vals, ""), "")
	}
	_, squeeze := args["squeeze"]
	lives := map[string]Life{}
	in := Input{
		Policy: Policy{
			MaxPerContainer: number(t, args["per"]), MaxTotal: number(t, args["total"]),
			MinAge: scenariotest.Duration(t, args["age"]),
		},
		Life: func(uid string) Life { return lives[uid] }, Squeeze: squeeze,
		Now: epoch.Add(scenariotest.Duration(t, args["at"])),
	}
	for line := range strings.Lines(d.Input) {
		w := strings.Fields(line)
		switch w[0] {
		case "pod":
			lives[w[1]] = map[string]Life{"wanted": Wanted, "ended": Ended}[w[2]]
		case "sandbox":
			state := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			if w[3] == "ready" {
				state = runtimeapi.PodSandboxState_SANDBOX_READY
			}
			in.Sandboxes = append(in.Sandboxes, &runtimeapi.PodSandbox{
				Id: w[1], State: state, CreatedAt: created(t, w[4]), Labels: of(w[2]),
				Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt(w[5:])},
			})
		case "container":
			in.Containers = append(in.Containers, parse(t, w))
		default:
			t.Fatalf("unknown line %q", line)
		}
	}
	var out strings.Builder
	for _, c := range Pick(in) {
		fmt.Fprintf(&out, "%s %s: %s", c.Action, c.Object, c.Reason)
		if c.Action == topic.ActionRemoveContainer {
			text := fmt.Sprintf(" (log %s/%d)", c.Name, c.RestartCount)
			if c.Unnamed {
				text = " (log unknown)"
			}
			out.WriteString(text)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func parse(t *testing.T, w []string) *runtimeapi.Container {
	c := &runtimeapi.Container{
		Id: w[1], PodSandboxId: w[4], CreatedAt: created(t, w[6]), Labels: of(w[2]), Annotations: map[string]string{},
		State:    runtimeapi.ContainerState(runtimeapi.ContainerState_value["CONTAINER_"+strings.ToUpper(w[5])]),
		Metadata: &runtimeapi.ContainerMetadata{Attempt: attempt(w[7:])},
	}
	c.Labels[labels.ContainerName] = w[3]
	if len(w) > 7 {
		c.Annotations[labels.RestartCount] = strings.TrimPrefix(w[7], "restarts=")
	}
	return c
}

// attempt is the number in "attempt=N" or "restarts=N"; 0 where there is none.
func attempt(words []string) uint32 {
	_, text, _ := strings.Cut(strings.Join(words, ""), "=")
	n, _ := strconv.ParseUint(text, 10, 32)
	return uint32(n)
}

func of(uid string) map[string]string {
	if uid == "-" {
		return map[string]string{}
	}
	return map[string]string{labels.PodUID: uid, labels.PodName: "web", labels.PodNamespace: "default"}
}

func created(t *testing.T, text string) int64 {
	return epoch.Add(scenariotest.Duration(t, strings.TrimPrefix(text, "at="))).UnixNano()
}

func number(t *testing.T, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
