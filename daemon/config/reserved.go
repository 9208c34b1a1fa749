package config

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
)

// Resources are kubeReserved or systemReserved as a list.
func Resources(settings map[string]string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range settings {
		if q, err := resource.ParseQuantity(text); err == nil { // it has been validated
			list[corev1.ResourceName(name)] = q
		}
	}
	return list
}

// Reserved is what is kept from pods of each resource: systemReserved and kubeReserved together. Where
// reservedSystemCPUs names CPUs, their number is what is reserved of them, as with the kubelet.
func Reserved(k *kubeletv1beta1.KubeletConfiguration) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, settings := range []map[string]string{k.KubeReserved, k.SystemReserved} {
		for name, q := range Resources(settings) {
			sum := list[name]
			sum.Add(q)
			list[name] = sum
		}
	}
	if cpus, err := cpuset.Parse(k.ReservedSystemCPUs); err == nil && cpus.Size() > 0 {
		list[corev1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
	}
	return list
}
