package parity

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// agreeWithin is how long the node and the API server may differ about a pod that changes.
const agreeWithin = time.Minute

// onNode is how the pod's status in the node's /pods differs from the API server's copy, of which one daemon writes
// both. Times are compared as they are.
func (s *stage) onNode(t *testing.T, p *corev1.Pod) string {
	t.Helper()
	if s.agent == node.Kubelet || p.Spec.NodeName == "" {
		return "" // what nobody has scheduled isn't the node's
	}
	lines := ""
	for began := time.Now(); time.Since(began) < agreeWithin; time.Sleep(100 * time.Millisecond) {
		listed, err := s.listed(t, kit.NodeUID(p))
		if err != nil {
			lines = err.Error()
			continue
		}
		stored, err := s.bed.Client.CoreV1().Pods(p.Namespace).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			lines = err.Error()
			continue
		}
		a, b := s.status(t, stored), s.status(t, listed)
		if a == b {
			return ""
		}
		lines = strings.Join(diff(a, b), "\n")
	}
	return "- API server, + /pods of the node:\n" + lines + "\n"
}

// listed is the pod with that UID as the node's API has it.
func (s *stage) listed(t *testing.T, uid string) (*corev1.Pod, error) {
	t.Helper()
	data, err := s.bed.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + kit.NodeName +
		"/proxy/pods").DoRaw(t.Context())
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list.Items, func(p corev1.Pod) bool { return string(p.UID) == uid })
	if i < 0 {
		return nil, fmt.Errorf("the node's API lists no pod %s", uid)
	}
	return &list.Items[i], nil
}
