package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// ConfigMaps is a cache of ConfigMaps; Run runs it.
func (c *Client) ConfigMaps(strategy Strategy) *ObjectCache[corev1.ConfigMap] {
	return newObjectCache[corev1.ConfigMap](objectCacheConfig[corev1.ConfigMap]{
		kind: "configmap", strategy: strategy, client: c,
		get: func(ctx context.Context, k ObjectKey) (*corev1.ConfigMap, error) {
			return c.core.ConfigMaps(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
		},
		source: func(k ObjectKey) source {
			return source{
				list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					o.FieldSelector = byName(k.Name)
					return c.core.ConfigMaps(k.Namespace).List(ctx, o)
				},
				watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					o.FieldSelector = byName(k.Name)
					return c.core.ConfigMaps(k.Namespace).Watch(ctx, o)
				},
			}
		},
		frozen: func(o *corev1.ConfigMap) bool { return o.Immutable != nil && *o.Immutable },
	})
}

// Secrets is a cache of Secrets; Run runs it.
func (c *Client) Secrets(strategy Strategy) *ObjectCache[corev1.Secret] {
	return newObjectCache[corev1.Secret](objectCacheConfig[corev1.Secret]{
		kind: "secret", strategy: strategy, client: c,
		get: func(ctx context.Context, k ObjectKey) (*corev1.Secret, error) {
			return c.core.Secrets(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
		},
		source: func(k ObjectKey) source {
			return source{
				list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					o.FieldSelector = byName(k.Name)
					return c.core.Secrets(k.Namespace).List(ctx, o)
				},
				watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					o.FieldSelector = byName(k.Name)
					return c.core.Secrets(k.Namespace).Watch(ctx, o)
				},
			}
		},
		frozen: func(o *corev1.Secret) bool { return o.Immutable != nil && *o.Immutable },
	})
}
