package podsapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// TestScenarios runs testdata: each file is the life of a book, and shows what watchers are told. "go test -rewrite"
// writes the results again; read the difference before you keep it.
//
//	pod uid=U rv=N [lifecycle=L] [deleting]    pod.update
//	pod-gone uid=U                             its removal
//	status uid=U phase=P [rv=N]                pod.status
//	status-gone uid=U                          its removal
//	synced pods|statuses                       all that the topic has retained is known
//	list                                       what ListPods has, or that it isn't known yet
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &scenario{newBook()}
		datadriven.RunTest(t, path, s.run)
	})
}

type scenario struct{ book *book }

func (s *scenario) run(t *testing.T, d *datadriven.TestData) string {
	args := map[string]string{}
	for _, a := range d.CmdArgs {
		args[a.Key] = strings.Join(a.Vals, ",")
	}
	uid := args["uid"]
	switch d.Cmd {
	case "pod":
		c := update(uid, args["rv"])
		c.Value.Lifecycle = topic.Lifecycle(args["lifecycle"])
		if _, ok := args["deleting"]; ok {
			c.Value.Pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_800_000_000, 0)}
		}
		return told(t, s.book.podChanged)(c)
	case "pod-gone":
		return told(t, s.book.podChanged)(gone(uid))
	case "status":
		return told(t, s.book.statusChanged)(merged(uid, corev1.PodPhase(args["phase"]), args["rv"]))
	case "status-gone":
		return told(t, s.book.statusChanged)(statusGone(uid))
	case "synced":
		if _, ok := args["pods"]; ok {
			return told(t, s.book.podChanged)(bus.Change[topic.Pod]{Synced: true})
		}
		return told(t, s.book.statusChanged)(bus.Change[topic.Merged]{Synced: true})
	case "list":
		return s.list(t)
	}
	t.Fatalf("unknown command %q", d.Cmd)
	return ""
}

// told makes the change and shows what watchers are told of it.
func told[T any](t *testing.T, change func(bus.Change[T]) (*event, error)) func(bus.Change[T]) string {
	return func(c bus.Change[T]) string {
		e, err := change(c)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return "nothing\n"
		}
		return fmt.Sprintf("%s %s\n", e.kind, text(decode(t, e.pod)))
	}
}

// text is a pod in one line.
func text(p *corev1.Pod) string {
	line := fmt.Sprintf("%s/%s %s rv=%s %s", p.Namespace, p.Name, p.UID, p.ResourceVersion, p.Status.Phase)
	if p.DeletionTimestamp != nil {
		line += " deleting"
	}
	return fmt.Sprintf("%s, %d containers", line, len(p.Spec.Containers))
}

func (s *scenario) list(t *testing.T) string {
	if !s.book.complete() {
		return "not known yet\n"
	}
	var out strings.Builder
	for _, data := range s.book.list() {
		p := decode(t, data)
		fmt.Fprintln(&out, text(p))
		if one := s.book.pod(string(p.UID)); string(one) != string(data) {
			t.Errorf("GetPod has another %s than ListPods", p.UID)
		}
	}
	if out.Len() == 0 {
		return "no pods\n"
	}
	return out.String()
}

// kinds are the types of events that a pod can have.
var kinds = []podsv1alpha1.EventType{
	podsv1alpha1.EventType_ADDED, podsv1alpha1.EventType_MODIFIED, podsv1alpha1.EventType_DELETED,
}
