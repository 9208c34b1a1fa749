package objects

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/kube"
)

// Hold follows the objects that the pod's environment variables and image pulls refer to, so that they are there
// when a container is started again while the API server is away. It takes the place of what the pod held before.
func (o *Objects) Hold(pod *corev1.Pod) {
	if o.client == nil {
		return
	}
	r := refsOf(pod)
	o.configMaps.Hold(string(pod.UID), keys(r.configMaps)...)
	o.secrets.Hold(string(pod.UID), keys(r.secrets)...)
}

// Release follows the pod's objects no longer.
func (o *Objects) Release(uid string) {
	if o.client == nil {
		return
	}
	o.configMaps.Hold(uid)
	o.secrets.Hold(uid)
}

// refs are the objects that a pod refers to.
type refs struct {
	namespace           string
	configMaps, secrets map[kube.ObjectKey]bool
}

func refsOf(pod *corev1.Pod) refs {
	r := refs{namespace: pod.Namespace, configMaps: map[kube.ObjectKey]bool{}, secrets: map[kube.ObjectKey]bool{}}
	for c := range podspec.Containers(&pod.Spec) {
		r.from(c.EnvFrom)
		r.variables(c.Env)
	}
	for _, ref := range pod.Spec.ImagePullSecrets {
		r.add(r.secrets, ref.Name)
	}
	return r
}

func (r *refs) add(to map[kube.ObjectKey]bool, name string) {
	if name != "" {
		to[kube.ObjectKey{Namespace: r.namespace, Name: name}] = true
	}
}

func (r *refs) from(sources []corev1.EnvFromSource) {
	for i := range sources {
		if ref := sources[i].ConfigMapRef; ref != nil {
			r.add(r.configMaps, ref.Name)
		}
		if ref := sources[i].SecretRef; ref != nil {
			r.add(r.secrets, ref.Name)
		}
	}
}

func (r *refs) variables(list []corev1.EnvVar) {
	for i := range list {
		from := list[i].ValueFrom
		if from == nil {
			continue
		}
		if from.ConfigMapKeyRef != nil {
			r.add(r.configMaps, from.ConfigMapKeyRef.Name)
		}
		if from.SecretKeyRef != nil {
			r.add(r.secrets, from.SecretKeyRef.Name)
		}
	}
}

func keys(set map[kube.ObjectKey]bool) []kube.ObjectKey { return slices.Collect(maps.Keys(set)) }
