package traces

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/scenariotest"
)

// epoch is the time 0s of scenarios.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// uidOf are the UIDs of the pods a and b.
var uidOf = map[string]string{
	"a": "4f7c1a52-0c5e-4a6e-9d0e-2f1f5b1c7a11", "b": "0b9d3f0e-6f5a-4c1b-8a77-5f1e2d3c4b5a",
}

// TestScenarios runs testdata: each file is what the bus says of pods. "go test -rewrite" writes the results again;
// read the difference before you keep it. The result of a command is the spans that are told, with their times and the
// span that they are below. All commands take pod=a|b (default a) and at=T (default 0s); kept means that the bus had it
// when the daemon began.
//
//	sampling rate=N        starts again with nothing known, and traces N pods of a million (default: all)
//	update LIFECYCLE       pod.update; seen=T, stop=T, released and kept say more
//	gone                   pod.update is removed
//	status PHASE           pod.status; ready and kept say more, the input is its reason and message, a line each
//	step NAME took=T       podsync.step that ends at T; _ stands for a space, the input is its error;
//	                       in=CONTAINER, image=IMAGE, span=ID, parent=ID and phase=begin say more
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{pods: newPods(1_000_000), names: map[ID]string{}}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct {
	pods *Pods
	// names are those of the spans that pods have, by ID.
	names map[ID]string
}

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{"pod": "a", "at": "0s"}
	first := ""
	for i, a := range d.CmdArgs {
		switch {
		case len(a.Vals) > 0:
			args[a.Key] = a.Vals[0]
		case i == 0:
			first = strings.ReplaceAll(a.Key, "_", " ")
		default:
			args[a.Key] = "true"
		}
	}
	now := at(t, args["at"])
	ref := topic.Ref{Namespace: "default", Name: args["pod"], UID: uidOf[args["pod"]]}
	for _, span := range []string{spanPod, spanEnd} {
		seen := &pod{Ref: ref, seen: at(t, cmp.Or(args["seen"], "0s"))}
		s.names[seen.id(span)] = span
	}
	kept := args["kept"] != ""
	switch d.Cmd {
	case "sampling":
		rate, err := strconv.Atoi(args["rate"])
		if err != nil {
			t.Fatal(err)
		}
		s.pods = newPods(topic.Sampling(rate))
		return ""
	case "update":
		return s.told(s.pods.Update(update(t, ref, first, args), now, kept))
	case "gone":
		return s.told(s.pods.Gone(ref.UID, now))
	case "status":
		reason, message, _ := strings.Cut(d.Input, "\n")
		m := topic.Merged{Ref: ref, Status: corev1.PodStatus{
			Phase: corev1.PodPhase(first), Reason: reason, Message: message,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}},
		}}
		if args["ready"] != "" {
			m.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		return s.told(s.pods.Status(&m, now, kept))
	case "step":
		span, ok := s.pods.step(&topic.Step{
			Ref: ref, Name: first, Container: args["in"], Image: args["image"], Phase: cmp.Or(args["phase"], topic.StepEnd),
			Duration: scenariotest.Duration(t, args["took"]), At: now, Error: d.Input,
			Span: args["span"], Parent: args["parent"],
		})
		if !ok {
			return ""
		}
		s.names[span.ID] = span.Name
		return s.told([]Span{span})
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

func update(t *testing.T, ref topic.Ref, lifecycle string, args map[string]string) *topic.Pod {
	u := &topic.Pod{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID),
		}},
		Lifecycle: topic.Lifecycle(lifecycle), FirstSeen: at(t, cmp.Or(args["seen"], "0s")), Released: args["released"] != "",
	}
	if args["stop"] != "" {
		grace := int64(30)
		end := at(t, args["stop"]).Add(30 * time.Second)
		u.GracePeriodSeconds, u.Deadline = &grace, &end
	}
	return u
}

// told shows the spans, a line each.
func (s *scenario) told(spans []Span) string {
	var text strings.Builder
	for i := range spans {
		span := &spans[i]
		m := span.message()
		fmt.Fprintf(&text, "%s: %s to %s", m.GetName(), span.Begin.Sub(epoch), span.End.Sub(epoch))
		if m.ParentSpanId != nil {
			fmt.Fprintf(&text, ", below %q", cmp.Or(s.names[span.Parent], fmt.Sprintf("%x", span.Parent)))
		}
		for _, a := range m.GetAttributes() {
			if a.GetKey() == "k8s.container.name" || a.GetKey() == "container.image.name" {
				fmt.Fprintf(&text, ", %s=%s", a.GetKey(), a.GetValue().GetStringValue())
			}
		}
		if m.GetStatus() != nil {
			fmt.Fprintf(&text, ", error %q", m.GetStatus().GetMessage())
		}
		text.WriteString("\n")
	}
	return text.String()
}

func at(t *testing.T, text string) time.Time {
	t.Helper()
	return epoch.Add(scenariotest.Duration(t, text))
}
