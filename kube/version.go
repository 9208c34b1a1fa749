package kube

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Older reports whether a is an older state of an object than b. Resource versions are ordered (KEP-5504); one that
// isn't a number counts as the oldest.
func Older(a, b metav1.Object) bool { return version(a) < version(b) }

func version(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
