package nodeinfo

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon/config"
)

// The answer counts unless lease has told of a later state of the same Node while the API server was asked.
func TestAnAnswerThatIsOlderThanTheNode(t *testing.T) {
	node := func(uid types.UID, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, ResourceVersion: version}}
	}
	for name, c := range map[string]struct{ told, answer, want *corev1.Node }{
		"a later one": {node("a", "9"), node("a", "10"), node("a", "10")},
		"an older":    {node("a", "11"), node("a", "10"), node("a", "11")},
		"another":     {node("a", "11"), node("b", "10"), node("b", "10")},
	} {
		f := newFacts(t, &config.Config{})
		f.SetNode(node("a", "8"))
		f.AskBy(func(context.Context, string) (*corev1.Node, error) { return c.answer, nil })
		var work func() func()
		changed := false
		if !f.Renew(t.Context(), "u", func(_ string, w func() func()) bool { work = w; return true }, func() {
			changed = true
		}) {
			t.Fatalf("%s: the pod doesn't wait", name)
		}
		answer := work()
		f.SetNode(c.told)
		answer()
		if got := f.Node(); got.UID != c.want.UID || got.ResourceVersion != c.want.ResourceVersion || !changed {
			t.Errorf("%s: Node %s at %s, want %s at %s; told of: %v", name, got.UID, got.ResourceVersion, c.want.UID,
				c.want.ResourceVersion, changed)
		}
	}
}
