package source

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// PodReflector calls handle with all pods that the API server has for this node: once when the first
// list is complete, and again after each change. It returns when ctx ends.
type PodReflector func(ctx context.Context, handle func(pods []*corev1.Pod)) error

// API is the API server as a source.
type API struct{ reflect PodReflector }

// NewAPI returns the source; it asks nothing before Run.
func NewAPI(reflect PodReflector) *API { return &API{reflect: reflect} }

// Name is "api".
func (a *API) Name() topic.Source { return topic.SourceAPI }

// Run delivers a set for each call of the reflector's handler.
func (a *API) Run(ctx context.Context, out chan<- Set) error {
	return a.reflect(ctx, func(pods []*corev1.Pod) {
		send(ctx, out, Set{Source: topic.SourceAPI, Pods: pods})
	})
}
