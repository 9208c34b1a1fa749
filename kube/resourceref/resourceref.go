// Package resourceref gives the values of resourceFieldRefs, which containers see in their environment and in downward
// API volumes: both must say the same.
package resourceref

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrNoAllocatable says that neither the container nor its pod has a limit and the node's allocatable, which then
// stands for it, isn't known yet.
var ErrNoAllocatable = errors.New("the node's allocatable resources are not known yet")

// Value is the quantity that ref names, divided by its divisor and rounded up. A reference without a container's name
// is to own, which may be nil where the API asks for a name. allocatable are the node's resources; nil where they
// aren't known yet.
//
// Source: Kubernetes API reference, ResourceFieldSelector; documentation "Downward API" for what stands for limits that
// aren't set; KEP-2837 for the pod's own.
func Value(ref *corev1.ResourceFieldSelector, pod *corev1.Pod, own *corev1.Container,
	allocatable corev1.ResourceList,
) (string, error) {
	container, err := find(pod, own, ref.ContainerName)
	if err != nil {
		return "", err
	}
	side, text, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(text)
	if !supported(name) || (side != "limits" && side != "requests") {
		return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
	}
	quantity := container.Resources.Requests[name]
	if side == "limits" {
		if quantity, err = limit(name, pod, container, allocatable); err != nil {
			return "", err
		}
	}
	return divide(name, quantity, ref.Divisor), nil
}

func find(pod *corev1.Pod, own *corev1.Container, name string) (*corev1.Container, error) {
	if own != nil && (name == "" || name == own.Name) {
		return own, nil
	}
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, fmt.Errorf("container %s not found", name)
}

func supported(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// limit is the container's limit or else the pod's or else what the node has to give. Huge pages are never
// overcommitted, so their limit is always explicit.
func limit(name corev1.ResourceName, pod *corev1.Pod, container *corev1.Container,
	allocatable corev1.ResourceList,
) (resource.Quantity, error) {
	q := container.Resources.Limits[name]
	if !q.IsZero() || hugePages(name) {
		return q, nil
	}
	if pod.Spec.Resources != nil {
		if q, ok := pod.Spec.Resources.Limits[name]; ok && !q.IsZero() {
			return q, nil
		}
	}
	if allocatable == nil {
		return q, fmt.Errorf("limits.%s of container %s isn't set, and %w", name, container.Name, ErrNoAllocatable)
	}
	return allocatable[name], nil
}

// divide rounds up. CPU is divided in thousandths, everything else in units; a divisor of zero means 1.
func divide(name corev1.ResourceName, quantity, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(by))), 10)
}
