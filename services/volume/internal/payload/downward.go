package payload

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"kubelot.dev/services/volume/internal/atomicwriter"
)

// ErrNoAllocatable says that a container has no limit of its own and the node's allocatable, which then
// stands for it, isn't known yet.
var ErrNoAllocatable = errors.New("the node's allocatable resources are not known yet")

// Downward are the files of a downward API volume. allocatable are the node's resources, which stand in
// for limits that a container doesn't have; nil where they aren't known yet.
func Downward(items []corev1.DownwardAPIVolumeFile, pod *corev1.Pod, allocatable corev1.ResourceList, mode *int32) (atomicwriter.Payload, error) {
	files := atomicwriter.Payload{}
	var errs []error
	for _, item := range items {
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = resourceField(item.ResourceFieldRef, pod, allocatable)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		files[path.Clean(item.Path)] = atomicwriter.File{Data: []byte(text), Mode: Mode(item.Mode, mode)}
	}
	return files, utilerrors.NewAggregate(errs)
}

// field is the text of a field of the pod's metadata; the API allows no others in volumes.
func field(pod *corev1.Pod, fieldPath string) (string, error) {
	if base, key, ok := subscript(fieldPath); ok {
		switch base {
		case "metadata.annotations":
			return pod.Annotations[key], checkKey(fieldPath, strings.ToLower(key))
		case "metadata.labels":
			return pod.Labels[key], checkKey(fieldPath, key)
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", fieldPath)
	}
	switch fieldPath {
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
}

// subscript splits a path such as metadata.labels['app'].
func subscript(fieldPath string) (base, key string, ok bool) {
	inner, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return "", "", false
	}
	base, key, ok = strings.Cut(inner, "['")
	return base, key, ok && base != ""
}

func checkKey(fieldPath, key string) error {
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(errs, ";"))
	}
	return nil
}

// formatMap has a line key="value" for each entry, sorted.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

func resourceField(ref *corev1.ResourceFieldSelector, pod *corev1.Pod, allocatable corev1.ResourceList) (string, error) {
	container, err := findContainer(pod, ref.ContainerName)
	if err != nil {
		return "", err
	}
	side, name, _ := strings.Cut(ref.Resource, ".")
	if !known(corev1.ResourceName(name)) || (side != "limits" && side != "requests") {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	list := container.Resources.Requests
	if side == "limits" {
		list = container.Resources.Limits
	}
	quantity := list[corev1.ResourceName(name)]
	if side == "limits" && quantity.IsZero() && !hugePages(corev1.ResourceName(name)) {
		if allocatable == nil {
			return "", fmt.Errorf("%s of container %s: %w", ref.Resource, container.Name, ErrNoAllocatable)
		}
		quantity = allocatable[corev1.ResourceName(name)]
	}
	return divide(corev1.ResourceName(name), quantity, ref.Divisor), nil
}

func findContainer(pod *corev1.Pod, name string) (*corev1.Container, error) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], nil
			}
		}
	}
	return nil, fmt.Errorf("container %s not found", name)
}

func known(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	}
	return hugePages(name)
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// divide is quantity in units of divisor, rounded up; a divisor of zero means 1.
func divide(name corev1.ResourceName, quantity, divisor resource.Quantity) string {
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == corev1.ResourceCPU {
		return ceil(quantity.MilliValue(), divisor.MilliValue())
	}
	return ceil(quantity.Value(), divisor.Value())
}

func ceil(n, by int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(n)/float64(by))), 10)
}
