package env

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// resourceValue gives the value of a resourceFieldRef: the quantity divided by the divisor, rounded up.
//
// Source: Kubernetes API reference, ResourceFieldSelector; documentation "Downward API" for the fall back to
// the node's allocatable.
func resourceValue(ref *corev1.ResourceFieldSelector, in Input) (string, error) {
	container, err := containerByName(in, ref.ContainerName)
	if err != nil {
		return "", err
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	if !ok || !supportedResource(name) || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
	}
	quantity := container.Resources.Requests[corev1.ResourceName(name)]
	if kind == "limits" {
		if quantity, err = effectiveLimit(corev1.ResourceName(name), container, in); err != nil {
			return "", err
		}
	}
	return divide(name, quantity, ref.Divisor), nil
}

func supportedResource(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
}

// effectiveLimit is the container's limit or else the pod's (KEP-2837) or else what the node has to give.
// Huge pages are never overcommitted, so their limit is always explicit.
func effectiveLimit(name corev1.ResourceName, container *corev1.Container, in Input) (resource.Quantity, error) {
	limit := container.Resources.Limits[name]
	if !limit.IsZero() || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		return limit, nil
	}
	if in.Pod.Spec.Resources != nil {
		if limit, ok := in.Pod.Spec.Resources.Limits[name]; ok && !limit.IsZero() {
			return limit, nil
		}
	}
	if in.Allocatable == nil {
		return limit, fmt.Errorf("limits.%s of container %s isn't set, and the node's allocatable resources are not known yet", name, container.Name)
	}
	return in.Allocatable[name], nil
}

func containerByName(in Input, name string) (*corev1.Container, error) {
	if name == "" || name == in.Container.Name {
		return in.Container, nil
	}
	for _, list := range [][]corev1.Container{in.Pod.Spec.Containers, in.Pod.Spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i], nil
		}
	}
	return nil, fmt.Errorf("container %s not found", name)
}

// divide rounds up. CPU is divided in thousandths, everything else in units.
func divide(name string, quantity, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if name == string(corev1.ResourceCPU) {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(by))), 10)
}
