package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func (c *Client) configMaps(namespace string) Resource[corev1.ConfigMap, *corev1.ConfigMap] {
	return Resource[corev1.ConfigMap, *corev1.ConfigMap]{c.core, "configmaps", namespace}
}

func (c *Client) secrets(namespace string) Resource[corev1.Secret, *corev1.Secret] {
	return Resource[corev1.Secret, *corev1.Secret]{c.core, "secrets", namespace}
}

// ConfigMaps is a cache of ConfigMaps; Run runs it.
func (c *Client) ConfigMaps(strategy Strategy) *ObjectCache[corev1.ConfigMap] {
	return newObjectCache[corev1.ConfigMap](objectCacheConfig[corev1.ConfigMap]{
		kind: "configmap", strategy: strategy, client: c,
		get: func(ctx context.Context, k ObjectKey) (*corev1.ConfigMap, error) {
			return c.configMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
		},
		source: func(k ObjectKey) source {
			return c.configMaps(k.Namespace).source(func() runtime.Object { return new(corev1.ConfigMapList) }, named(k.Name))
		},
		frozen: func(o *corev1.ConfigMap) bool { return o.Immutable != nil && *o.Immutable },
	})
}

// Secrets is a cache of Secrets; Run runs it.
func (c *Client) Secrets(strategy Strategy) *ObjectCache[corev1.Secret] {
	return newObjectCache[corev1.Secret](objectCacheConfig[corev1.Secret]{
		kind: "secret", strategy: strategy, client: c,
		get: func(ctx context.Context, k ObjectKey) (*corev1.Secret, error) {
			return c.secrets(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
		},
		source: func(k ObjectKey) source {
			return c.secrets(k.Namespace).source(func() runtime.Object { return new(corev1.SecretList) }, named(k.Name))
		},
		frozen: func(o *corev1.Secret) bool { return o.Immutable != nil && *o.Immutable },
	})
}
