package growth

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of failures that matter. All others are tried again, and nothing is written of them.
var (
	// ErrInUse is of a volume that can't grow while it is in use: pods have it as it is.
	ErrInUse = errors.New("the volume can't grow while it is in use")
	// ErrInfeasible is of a size that the volume can never have.
	ErrInfeasible = errors.New("the volume can never have that size")
	// ErrFinal is of a call that has done nothing and does nothing any more.
	ErrFinal = errors.New("the volume was not made larger")
	// ErrUnsupported is of a driver that leaves nothing to do on the node.
	ErrUnsupported = errors.New("the driver makes no volumes larger on the node")
)

// Step is a growth that is due on the node.
type Step struct {
	// Size is what the volume is to have.
	Size resource.Quantity
	// Told reports whether the claim's status says already that the volume has the size: another node has followed it, and
	// nothing is written.
	Told bool
	// Begin reports whether the claim's status is to say before that it is under way. Controllers of old releases don't
	// know that state.
	Begin bool
}

// Next says what is due about the claim's volume. Only the states that end on a node are the node's: all others are the
// controller's.
func Next(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (s Step, due bool) {
	has, wanted := claim.Status.Capacity[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
	switch status := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; {
	case has.Cmp(wanted) >= 0:
		return Step{}, false
	case status == "":
		// A controller that knows of states has ended what it began. One of an old release knows none, and allocates
		// nothing.
		_, allocated := claim.Status.AllocatedResources[corev1.ResourceStorage]
		return Step{Size: wanted}, !allocated
	case status != corev1.PersistentVolumeClaimNodeResizePending &&
		status != corev1.PersistentVolumeClaimNodeResizeInProgress:
		return Step{}, false
	}
	if allocated, ok := claim.Status.AllocatedResources[corev1.ResourceStorage]; ok {
		wanted = allocated
	}
	return Step{Size: wanted, Begin: true}, true
}

// notRequired is the annotation of a claim whose volume needs nothing on a node to grow.
const notRequired = "volume.kubernetes.io/node-expansion-not-required"

// Follow says what is due about a volume that this node has with that capacity, and of which the claim says that it is
// larger: with one that several nodes may write to, each of them has to follow (kubernetes/kubernetes#131381).
func Follow(claim *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, here string) (s Step, due bool) {
	wanted := pv.Spec.Capacity[corev1.ResourceStorage]
	return Step{Size: wanted, Told: true}, MustFollow(claim, here) && isLess(here, wanted)
}

// MustFollow reports whether Follow may say that something is due.
func MustFollow(claim *corev1.PersistentVolumeClaim, here string) bool {
	_, isNot := claim.Annotations[notRequired]
	return !isNot && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) &&
		claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] == "" &&
		isLess(here, claim.Status.Capacity[corev1.ResourceStorage])
}

// isLess reports whether a size that is known is less than another.
func isLess(size string, other resource.Quantity) bool {
	q, err := resource.ParseQuantity(size)
	return err == nil && q.Cmp(other) < 0
}

// MayBeDue reports whether a look at the volume is worth it.
func MayBeDue(claim *corev1.PersistentVolumeClaim) bool {
	if claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage] != "" {
		return true
	}
	return slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimFileSystemResizePending && c.Status == corev1.ConditionTrue
	})
}

// resizing are the conditions that end with a growth.
var resizing = []corev1.PersistentVolumeClaimConditionType{
	corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
	corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError,
}

// Begun is the patch of the claim's status that says that the node is at it. It fails where somebody else has written
// the claim since it was read.
func Begun(claim *corev1.PersistentVolumeClaim) ([]byte, error) {
	return patch(claim, true, map[string]any{
		"allocatedResourceStatuses": map[string]any{
			string(corev1.ResourceStorage): corev1.PersistentVolumeClaimNodeResizeInProgress,
		},
	})
}

// Finished is the patch that says that the volume has the size.
func Finished(claim *corev1.PersistentVolumeClaim, size resource.Quantity) ([]byte, error) {
	status := map[string]any{"capacity": map[string]any{string(corev1.ResourceStorage): size.String()}}
	if _, has := claim.Status.AllocatedResourceStatuses[corev1.ResourceStorage]; has {
		status["allocatedResourceStatuses"] = map[string]any{string(corev1.ResourceStorage): nil}
	}
	var gone []any
	for _, c := range claim.Status.Conditions {
		if slices.Contains(resizing, c.Type) {
			gone = append(gone, map[string]any{"type": c.Type, "$patch": "delete"})
		}
	}
	if len(gone) > 0 {
		status["conditions"] = gone
	}
	return patch(claim, true, status)
}

// Failed is the patch that says why the volume isn't larger; nil where nothing is to be said, or was said before. A
// size that the volume can never have ends the node's tries: the controller decides what comes next. So does any
// failure that is final, once the user has asked for another size.
func Failed(claim *corev1.PersistentVolumeClaim, s Step, why error, now time.Time) ([]byte, error) {
	infeasible := errors.Is(why, ErrInfeasible)
	final := infeasible || errors.Is(why, ErrFinal) || errors.Is(why, ErrInUse) || errors.Is(why, ErrUnsupported)
	if !s.Begin || !final {
		return nil, nil
	}
	asked := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	failedBefore := slices.ContainsFunc(claim.Status.Conditions, func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimNodeResizeError && c.Status == corev1.ConditionTrue
	})
	status := map[string]any{}
	if !failedBefore {
		status["conditions"] = []any{corev1.PersistentVolumeClaimCondition{
			Type: corev1.PersistentVolumeClaimNodeResizeError, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now), Message: fmt.Sprintf("failed to expand pvc with %v", why),
		}}
	}
	if infeasible || asked.Cmp(s.Size) != 0 && failedBefore {
		status["allocatedResourceStatuses"] = map[string]any{
			string(corev1.ResourceStorage): corev1.PersistentVolumeClaimNodeResizeInfeasible,
		}
	}
	if len(status) == 0 {
		return nil, nil
	}
	return patch(claim, false, status)
}

// patch is a strategic merge patch of the status of this very claim, or of the version that was read.
func patch(claim *corev1.PersistentVolumeClaim, sameVersion bool, status map[string]any) ([]byte, error) {
	metadata := map[string]any{"uid": claim.UID}
	if sameVersion {
		metadata["resourceVersion"] = claim.ResourceVersion
	}
	return json.Marshal(map[string]any{"metadata": metadata, "status": status})
}
