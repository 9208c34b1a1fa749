package payload

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"kubelot.dev/kube/resourceref"
	"kubelot.dev/services/volume/internal/atomicwriter"
)

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
			text, err = resourceref.Value(item.ResourceFieldRef, pod, nil, allocatable)
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
