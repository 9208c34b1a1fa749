package topic

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNonsense(t *testing.T) {
	const long = 900_000
	negative := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("-4")}},
	}
	negative.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("4")}
	for _, c := range []struct {
		err  error
		want string // empty: it makes sense
	}{
		{checkPod("a", Pod{}), "no pod"},
		{checkPod("a", Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "b"}}}), `UID "b"`},
		{checkPod("a", Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Namespace: ".."}}}), "namespace"},
		{checkPod("a", Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a", Namespace: "x", Name: "y.z"}}}), ""},
		{checkStatus("a", PodStatus{Ref: Ref{UID: "b"}}), `UID "b"`},
		{checkStatus("a", PodStatus{Status: corev1.PodStatus{Message: strings.Repeat("x", long)}}), "900000 bytes"},
		{checkObservation("a", PodObservation{Ref: Ref{Name: "a\x00"}}), "control character"},
		{checkProbe("", Probe{}), "no container"},
		{checkProbe("", Probe{ContainerID: "c", Message: "what a program prints: \x00\x1b"}), ""},
		{checkMachine("", Machine{NumCores: -1}), "-1 cores"},
		{checkMachine("", Machine{NumCores: 1, PIDLimit: -1}), "-1 processes"},
		{checkMachine("", Machine{NumCores: 1, OSImage: "Debian GNU/Linux 12 (bookworm)"}), ""},
		{checkNode("", corev1.Node{}), "empty"},
		{checkNode("", negative), `-4 of "cpu"`},
		{checkHealth("", DaemonHealth{}), "no state"},
		{checkHealth("", DaemonHealth{State: "of a later release"}), ""},
		{checkRuntime("", Runtime{Message: strings.Repeat("x", long)}), "900000 bytes"},
		{checkPlugin("CSIPlugin.b", Plugin{Type: CSIPlugin, Name: "a"}), `plugin "a"`},
		{checkPlugin("CSIPlugin.a", Plugin{Type: CSIPlugin, Name: "a"}), "no absolute path"},
		{checkPlugin("DRAPlugin.a:example", Plugin{
			Type: DRAPlugin, Name: "a.example", PluginEndpoint: PluginEndpoint{Endpoint: "/run/a.sock"},
		}), ""},
		{checkEvent("", Event{Kind: "Pod", Ref: Ref{Name: "a/b"}}), "lacks"},
	} {
		switch {
		case c.want == "" && c.err != nil:
			t.Errorf("refused: %v", c.err)
		case c.want != "" && (c.err == nil || !strings.Contains(c.err.Error(), c.want) || len(c.err.Error()) > 200):
			t.Errorf("%v; want an error with %q", c.err, c.want)
		}
	}
}
