package manifest

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The fields that the downward API offers (API ObjectFieldSelector): to a volume, and to the environment.
var (
	volumeFields = []string{
		"metadata.annotations", "metadata.labels", "metadata.name",
		"metadata.namespace", "metadata.uid",
	}
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	// subscript is one label or annotation.
	subscript = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^metadata\.(?:labels|annotations)\['([^']+)'\]$`)
	})
	// resourceNames are those of a container that the downward API offers, after "limits." or "requests.".
	resourceNames = []string{"cpu", "memory", "ephemeral-storage"}
)

func validateFieldRef(ref *corev1.ObjectFieldSelector, fields []string, at *field.Path) field.ErrorList {
	path := at.Child("fieldPath")
	if ref.FieldPath == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if ref.APIVersion != "v1" {
		return field.ErrorList{field.NotSupported(at.Child("apiVersion"), ref.APIVersion, []string{"v1"})}
	}
	if key := subscript().FindStringSubmatch(ref.FieldPath); key != nil {
		return messages(validation.IsQualifiedName(strings.ToLower(key[1])), key[1], path)
	}
	if !slices.Contains(fields, ref.FieldPath) {
		return field.ErrorList{field.NotSupported(path, ref.FieldPath, fields)}
	}
	return nil
}

func validateResourceRef(ref *corev1.ResourceFieldSelector, at *field.Path) field.ErrorList {
	if ref.Resource == "" {
		return field.ErrorList{field.Required(at.Child("resource"), "")}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	known := slices.Contains(resourceNames, name) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	if kind != "limits" && kind != "requests" || !known {
		return field.ErrorList{field.NotSupported(at.Child("resource"), ref.Resource,
			[]string{
				"limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory",
				"requests.ephemeral-storage",
			})}
	}
	return nil
}
