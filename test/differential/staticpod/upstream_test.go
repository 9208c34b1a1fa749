package staticpod

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	core "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/apis/core/helper"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corev1internal "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/util/hash"
)

const (
	node = "node-1"
	file = "/etc/kubernetes/manifests/pod.yaml"
)

// upstream makes a static pod of a manifest with Kubernetes' own decoder, defaults, hash and validation.
// The pod is returned with a validation error too.
func upstream(data []byte) (*corev1.Pod, error) {
	doc, err := utilyaml.ToJSON(data)
	if err != nil {
		return nil, err
	}
	obj, err := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), doc)
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*core.Pod)
	if !ok || pod.Name == "" {
		return nil, errors.New("not a pod with a name")
	}
	if pod.UID == "" {
		h := fnv.New128a()
		hash.DeepHashObject(h, pod)
		fmt.Fprintf(h, "host:%sfile:%s", node, file)
		pod.UID = types.UID(hex.EncodeToString(h.Sum(nil)))
	}
	pod.Name += "-" + strings.ToLower(node)
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	pod.Spec.NodeName = node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations["kubernetes.io/config.hash"] = string(pod.UID)
	helper.AddOrUpdateTolerationInPod(pod, &core.Toleration{
		Operator: core.TolerationOpExists,
		Effect:   core.TaintEffectNoExecute,
	})
	pod.Status.Phase = core.PodPending
	out := new(corev1.Pod)
	if err := corev1internal.Convert_core_Pod_To_v1_Pod(pod, out, nil); err != nil {
		return nil, err
	}
	opts := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
	if errs := validation.ValidatePodCreate(pod, opts); len(errs) > 0 {
		return out, errs.ToAggregate()
	}
	if _, what, err := podutil.HasAPIObjectReference(pod); err != nil || what != "" {
		return out, errors.Join(fmt.Errorf("static pods may not reference %s", what), err)
	}
	return out, nil
}
