package payload

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/kube/resourceref"
	"kubelot.dev/services/volume/internal/atomicwriter"
)

// Downward are the files of a downward API volume. allocatable are the node's resources, which stand in
// for limits that a container doesn't have; nil where they aren't known yet.
func Downward(items []corev1.DownwardAPIVolumeFile, pod *corev1.Pod, allocatable corev1.ResourceList,
	mode *int32,
) (atomicwriter.Payload, error) {
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
		files[path.Clean(item.Path)] = atomicwriter.File{Data: []byte(text), Mode: modeOf(item.Mode, mode)}
	}
	return files, utilerrors.NewAggregate(errs)
}

// field is the text of a field of the pod's metadata; the API allows no others in volumes.
func field(pod *corev1.Pod, fieldPath string) (string, error) {
	if base, key, ok := podspec.SplitSubscript(fieldPath); ok {
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
		return podspec.FormatMap(pod.Annotations), nil
	case "metadata.labels":
		return podspec.FormatMap(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", fieldPath)
}

func checkKey(fieldPath, key string) error {
	if errs := validation.IsQualifiedName(key); len(errs) > 0 {
		return fmt.Errorf("invalid key subscript in %s: %s", fieldPath, strings.Join(errs, ";"))
	}
	return nil
}
