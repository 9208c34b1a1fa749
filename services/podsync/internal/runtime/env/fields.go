package env

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"kubelot.dev/daemon/podspec"
)

// fieldValue gives the value of a fieldRef.
//
// Source: Kubernetes documentation "Downward API", Available fields.
func fieldValue(ref *corev1.ObjectFieldSelector, in Input) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	if path, key, ok := podspec.SplitSubscript(ref.FieldPath); ok {
		return mapValue(in.Pod, path, key)
	}
	pod := in.Pod
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return podspec.FormatMap(pod.Labels), nil
	case "metadata.annotations":
		return podspec.FormatMap(pod.Annotations), nil
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	}
	return addressValue(ref.FieldPath, in)
}

// addressValue gives the value of the fields that aren't in the pod's spec.
func addressValue(path string, in Input) (string, error) {
	switch path {
	case "status.hostIP", "status.hostIPs":
		if len(in.HostIPs) == 0 {
			return "", fmt.Errorf("fieldPath %s: the node's addresses are not known yet", path)
		}
		if path == "status.hostIP" {
			return in.HostIPs[0], nil
		}
		return strings.Join(in.HostIPs, ","), nil
	case "status.podIP", "status.podIPs":
		ips := podspec.OrderIPs(in.PodIPs, in.HostIPs)
		if path == "status.podIP" {
			ips = ips[:min(1, len(ips))]
		}
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("field label not supported: %s", path)
}

// mapValue gives one label or annotation; one that isn't there has the empty value.
func mapValue(pod *corev1.Pod, path, key string) (string, error) {
	var values map[string]string
	name := key
	switch path {
	case "metadata.labels":
		values = pod.Labels
	case "metadata.annotations":
		values = pod.Annotations
		// Annotation keys may have capitals in the part where a label's may not.
		name = strings.ToLower(key)
	default:
		return "", fmt.Errorf("field label does not support subscript: %s['%s']", path, key)
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s['%s']: %s", path, key, strings.Join(errs, ";"))
	}
	return values[key], nil
}
