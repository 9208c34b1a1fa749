package manifest

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// MaxBytes is the largest manifest that is read, as in the kubelet.
const MaxBytes = 10 << 20

// AnnotationHash carries the UID that a static pod's manifest gives it; the mirror pod is matched by it.
const AnnotationHash = "kubernetes.io/config.hash"

// Origin is where a manifest was found.
type Origin struct {
	// File is the manifest's path; empty for a URL.
	File string
	// URL is the manifest's address; empty for a file.
	URL      string
	NodeName string
}

// String is the file or the URL.
func (o Origin) String() string {
	if o.File != "" {
		return o.File
	}
	return o.URL
}

// Pod decodes a manifest that holds one v1 Pod, in YAML or JSON, and makes it a static pod of the node:
// defaults filled in, validated, with the name, UID and annotations that the kubelet would give it.
// The warnings name what the kubelet would have ignored in silence.
func Pod(data []byte, from Origin) (pod *corev1.Pod, warnings []string, err error) {
	doc, warnings, err := document(data)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", from, err)
	}
	pods, more, err := decode(doc, from, false)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", from, err)
	}
	return pods[0], append(warnings, more...), nil
}

// Pods decodes a v1 Pod or a v1 PodList. One bad pod makes the whole answer unusable, as in the kubelet: what a
// server sends is one document.
func Pods(data []byte, from Origin) (pods []*corev1.Pod, warnings []string, err error) {
	doc, warnings, err := document(data)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", from, err)
	}
	pods, more, err := decode(doc, from, true)
	if err != nil {
		return nil, nil, fmt.Errorf("manifest %s: %w", from, err)
	}
	return pods, append(warnings, more...), nil
}

// static makes a decoded pod a static pod of the node, if it is fit to be one.
func static(pod *corev1.Pod, from Origin) error {
	if err := complete(pod, from); err != nil {
		return err
	}
	if err := validate(pod); err != nil {
		return err
	}
	if what := apiReference(pod); what != "" {
		return fmt.Errorf("static pods may not reference %s: "+
			"a static pod must run without the API server; use hostPath or literal values", what)
	}
	return nil
}

// complete gives the pod its defaults, name, UID, node and annotations.
func complete(pod *corev1.Pod, from Origin) error {
	if pod.Name == "" {
		return errors.New("metadata.name is missing: give the pod a name")
	}
	setDefaults(pod)
	canonical(pod)
	if pod.UID == "" {
		pod.UID = types.UID(uid(pod, from))
	}
	// The suffix makes the mirror pod's name unique in the cluster.
	pod.Name += "-" + strings.ToLower(from.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = from.NodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationHash] = string(pod.UID)
	if from.File != "" {
		tolerateNoExecute(pod)
	}
	if pod.Spec.Priority == nil {
		pod.Spec.Priority = systemPriority(pod.Spec.PriorityClassName)
	}
	pod.Status.Phase = corev1.PodPending
	return nil
}

// canonical applies what the API's conversion to its internal form and back changes.
func canonical(pod *corev1.Pod) {
	if g := pod.Spec.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		one := int64(1)
		pod.Spec.TerminationGracePeriodSeconds = &one
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = pod.Spec.DeprecatedServiceAccount
	}
	pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	for _, old := range []string{
		"pod.alpha.kubernetes.io/init-containers", "pod.beta.kubernetes.io/init-containers",
		"pod.alpha.kubernetes.io/init-container-statuses", "pod.beta.kubernetes.io/init-container-statuses",
	} {
		delete(pod.Annotations, old)
	}
}

// tolerateNoExecute keeps node problems from evicting a pod that nothing would put back.
func tolerateNoExecute(pod *corev1.Pod) {
	all := corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	found := false
	for i, t := range pod.Spec.Tolerations {
		if t.MatchToleration(&all) {
			pod.Spec.Tolerations[i] = all
			found = true
		}
	}
	if !found {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, all)
	}
}

// systemPriority is the priority of the two classes that every cluster has (API PriorityClass). Other
// classes are known to the API server only.
func systemPriority(class string) *int32 {
	var p int32
	switch class {
	case "system-cluster-critical":
		p = topic.SystemCritical
	case "system-node-critical":
		p = 2000001000
	default:
		return nil
	}
	return &p
}
