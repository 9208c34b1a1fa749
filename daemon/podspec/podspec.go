// Package podspec reads pods' specifications.
package podspec

import (
	"iter"

	corev1 "k8s.io/api/core/v1"
)

// InitAndMain are the pod's init containers and containers, in the order in which they start. A change to one changes
// the pod.
func InitAndMain(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// Containers are those of InitAndMain, and then the ephemeral containers.
func Containers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for c := range InitAndMain(spec) {
			if !yield(c) {
				return
			}
		}
		for i := range spec.EphemeralContainers {
			// The types have the same fields, which the compiler holds.
			if !yield((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}
