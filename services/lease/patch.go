package lease

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// diff is the strategic merge patch for nodes/status that turns current into wanted.
func diff(current, wanted *corev1.Node) ([]byte, error) {
	before, err := json.Marshal(reduced(current))
	if err != nil {
		return nil, fmt.Errorf("encode the current Node: %w", err)
	}
	after, err := json.Marshal(reduced(wanted))
	if err != nil {
		return nil, fmt.Errorf("encode the wanted Node: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare the Nodes: %w", err)
	}
	if equality.Semantic.DeepEqual(current.Status.Addresses, wanted.Status.Addresses) {
		return patch, nil
	}
	return replaceAddresses(patch, wanted.Status.Addresses)
}

// reduced is what of a Node is written to its status: a patch can't change its spec there.
func reduced(n *corev1.Node) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: n.Labels, Annotations: n.Annotations}, Status: n.Status}
}

// replaceAddresses makes the patch set the whole list of addresses. Merged by their key, the type, two InternalIPs
// would become one (issue kubernetes/kubernetes#63274).
func replaceAddresses(patch []byte, addresses []corev1.NodeAddress) ([]byte, error) {
	var content map[string]any
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("compare the Nodes' addresses: %w", err)
	}
	status, ok := content["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		content["status"] = status
	}
	list := []any{}
	for _, a := range addresses {
		list = append(list, a)
	}
	status["addresses"] = append(list, map[string]string{"$patch": "replace"})
	delete(status, "$setElementOrder/addresses")
	return json.Marshal(content)
}

// differs reports whether wanted differs from current in more than the times of the conditions' reports.
func differs(current, wanted *corev1.Node) bool {
	a, b := reduced(current), reduced(wanted)
	if conditionsDiffer(a.Status.Conditions, b.Status.Conditions) {
		return true
	}
	a.Status.Conditions, b.Status.Conditions = nil, nil
	return !equality.Semantic.DeepEqual(a, b)
}

// conditionsDiffer compares conditions except for the time of the report.
func conditionsDiffer(current, wanted []corev1.NodeCondition) bool {
	return !equality.Semantic.DeepEqual(undated(current), undated(wanted))
}

func undated(list []corev1.NodeCondition) []corev1.NodeCondition {
	plain := slices.Clone(list)
	for i := range plain {
		plain[i].LastHeartbeatTime = metav1.Time{}
	}
	slices.SortStableFunc(plain, func(a, b corev1.NodeCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	return plain
}
