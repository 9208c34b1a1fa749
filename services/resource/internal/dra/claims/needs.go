package claims

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Need is a claim that a pod needs.
type Need struct {
	// PodClaim is its name in the pod's spec; empty for the claim of the pod's extended resources.
	PodClaim string
	// Claim is the name of the ResourceClaim, which is in the pod's namespace.
	Claim string
	// Generated is true for claims that were made for this pod from a template.
	Generated bool
}

var (
	// errNotCreated is of a claim from a template that isn't made yet.
	errNotCreated = errors.New("ResourceClaim not created yet")
	// errUnsupported is of a claim that names neither a ResourceClaim nor a template.
	errUnsupported = errors.New("none of the supported fields are set")
)

// Used reports whether the pod has claims. One with a template may still turn out to need none.
func Used(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || extended(pod) != nil
}

func extended(pod *corev1.Pod) *corev1.PodExtendedResourceClaimStatus {
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		return s
	}
	return nil
}

// Needs are the claims that the pod needs, in the order of its spec. The error is for the pod's user.
func Needs(pod *corev1.Pod) ([]Need, error) {
	var needs []Need
	for i := range pod.Spec.ResourceClaims {
		n, err := need(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if n.Claim != "" {
			needs = append(needs, n)
		}
	}
	if s := extended(pod); s != nil {
		needs = append(needs, Need{Claim: s.ResourceClaimName})
	}
	return needs, nil
}

// need is what the pod's claim stands for. It has no Claim where the API server says that none is needed.
func need(pod *corev1.Pod, c *corev1.PodResourceClaim) (Need, error) {
	switch {
	case c.ResourceClaimName != nil:
		return Need{PodClaim: c.Name, Claim: *c.ResourceClaimName}, nil
	case c.ResourceClaimTemplateName == nil:
		return Need{}, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: %w`, pod.Namespace, pod.Name, c.Name, errUnsupported)
	}
	statuses := pod.Status.ResourceClaimStatuses
	i := slices.IndexFunc(statuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
	switch {
	case i < 0:
		return Need{}, fmt.Errorf(`pod "%s/%s": %w`, pod.Namespace, pod.Name, errNotCreated)
	case statuses[i].ResourceClaimName == nil:
		return Need{}, nil
	}
	return Need{PodClaim: c.Name, Claim: *statuses[i].ResourceClaimName, Generated: true}, nil
}
