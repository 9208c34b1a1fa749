package claims

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Wanted is a claim that a pod may use, as the API server has it.
type Wanted struct {
	types.NamespacedName
	UID types.UID
	// Drivers are those of its allocation, each once, sorted.
	Drivers []string
	// Former are pods that used it before it was read, and for which it is not reserved any more. It may have been
	// allocated anew since, with other devices.
	Former []types.UID
}

// Check judges whether the pod may use the claim that it needs. Users are the pods that used it before it was read. The
// error is for the pod's user.
func Check(pod *corev1.Pod, n Need, claim *resourceapi.ResourceClaim, users []types.UID) (Wanted, error) {
	if n.Generated {
		if err := isFor(pod, claim); err != nil {
			return Wanted{}, err
		}
	}
	if !reserved(pod.UID, claim) {
		return Wanted{}, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)",
			pod.Name, pod.UID, n.Claim, claim.UID)
	}
	drivers, err := driversOf(claim)
	if err != nil {
		return Wanted{}, fmt.Errorf("ResourceClaim %s: %w", n.Claim, err)
	}
	return Wanted{
		NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: n.Claim}, UID: claim.UID, Drivers: drivers,
		Former: slices.DeleteFunc(slices.Clone(users), func(uid types.UID) bool { return reserved(uid, claim) }),
	}, nil
}

// reserved reports whether the claim is the pod's to use.
func reserved(pod types.UID, claim *resourceapi.ResourceClaim) bool {
	return slices.ContainsFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool {
		return c.UID == pod
	})
}

func isFor(pod *corev1.Pod, claim *resourceapi.ResourceClaim) error {
	switch {
	case claim.Namespace != pod.Namespace:
		return fmt.Errorf("ResourceClaim %s/%s is not in the same namespace as Pod %s/%s", claim.Namespace, claim.Name,
			pod.Namespace, pod.Name)
	case !metav1.IsControlledBy(claim, pod):
		return fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", claim.Namespace,
			claim.Name, pod.Namespace, pod.Name)
	}
	return nil
}

func driversOf(claim *resourceapi.ResourceClaim) ([]string, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("not allocated")
	}
	drivers := []string{}
	for i := range claim.Status.Allocation.Devices.Results {
		driver := claim.Status.Allocation.Devices.Results[i].Driver
		if driver == "" {
			return nil, errors.New("DRA driver name is empty")
		}
		drivers = append(drivers, driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers), nil
}
