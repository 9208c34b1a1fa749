package allocation

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"kubelot.dev/daemon/podspec"
)

// Waiting is a pod that asks for other resources than it holds.
type Waiting struct {
	Wanted, Held *corev1.Pod
	// Since is when it was first put off; zero if it wasn't.
	Since time.Time
}

// Order says whose turn is first: who asks for no more than it holds, then by priority, guaranteed pods before others,
// and who has waited longest (KEP-1287).
func Order(a, b Waiting) int {
	if c := cmp.Compare(number(a.grows()), number(b.grows())); c != 0 {
		return c
	}
	if c := cmp.Compare(priority(b.Wanted), priority(a.Wanted)); c != 0 {
		return c
	}
	if c := cmp.Compare(number(podspec.QOSClass(a.Wanted) != corev1.PodQOSGuaranteed),
		number(podspec.QOSClass(b.Wanted) != corev1.PodQOSGuaranteed)); c != 0 {
		return c
	}
	switch {
	case a.Since.IsZero() != b.Since.IsZero():
		return number(a.Since.IsZero()) - number(b.Since.IsZero())
	case !a.Since.Equal(b.Since):
		return a.Since.Compare(b.Since)
	}
	return cmp.Compare(a.Wanted.UID, b.Wanted.UID)
}

func (w Waiting) grows() bool {
	held := resourcehelper.PodRequests(w.Held, resourcehelper.PodResourcesOptions{})
	wanted := resourcehelper.PodRequests(w.Wanted, resourcehelper.PodResourcesOptions{})
	return wanted.Cpu().Cmp(*held.Cpu()) > 0 || wanted.Memory().Cmp(*held.Memory()) > 0
}

func priority(pod *corev1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}
