package status

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// diff is the strategic merge patch that turns the status current into wanted on the pod with that UID,
// and nil where there is nothing to change. The UID in the patch makes the API server refuse it for another
// pod of the same name.
func diff(current, wanted corev1.PodStatus, uid string) ([]byte, error) {
	if equality.Semantic.DeepEqual(current, wanted) {
		return nil, nil // the most frequent case, told without encoding both
	}
	before, err := json.Marshal(corev1.Pod{Status: current})
	if err != nil {
		return nil, fmt.Errorf("encode the pod's current status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: wanted})
	if err != nil {
		return nil, fmt.Errorf("encode the pod's new status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compare the pod's status: %w", err)
	}
	var content map[string]json.RawMessage
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("compare the pod's status: %w", err)
	}
	if _, changed := content["status"]; !changed {
		return nil, nil
	}
	return patch, nil
}
