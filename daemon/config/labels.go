package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// labels parses --node-labels. Labels of Kubernetes' own namespaces that NodeRestriction would refuse, and with them
// the whole Node, are an error.
func (f *Flags) labels() (map[string]string, error) {
	labels := map[string]string{}
	var unknown []string
	var problems []error
	for item := range strings.SplitSeq(f.NodeLabels, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		key, value, _ := strings.Cut(item, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if wrong := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(wrong) > 0 {
			problems = append(problems, fmt.Errorf("--node-labels: label %s=%s: %s", key, value, strings.Join(wrong, "; ")))
		}
		if ofKubernetes(key) && !kubeletapis.IsKubeletLabel(key) {
			unknown = append(unknown, key)
		}
		labels[key] = value
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		problems = append(problems,
			fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %v\n"+
				"--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (%s) or be in the specifically "+
				"allowed set (%s)",
				unknown, strings.Join(kubeletapis.KubeletLabelNamespaces(), ", "), strings.Join(kubeletapis.KubeletLabels(), ", ")))
	}
	return labels, errors.Join(problems...)
}

// ofKubernetes reports whether the label is in one of Kubernetes' own namespaces.
func ofKubernetes(key string) bool {
	namespace, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(own string) bool {
		return namespace == own || strings.HasSuffix(namespace, "."+own)
	})
}
