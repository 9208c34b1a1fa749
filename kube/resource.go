package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// optionsVersion is the version in which options of requests are written into a URL.
var optionsVersion = schema.GroupVersion{Version: "v1"}

// Resource is one kind of objects at the API server, in one namespace or in none. Its methods are those of client-go's
// typed clients, whose packages link the whole API: its scheme, its apply configurations and its OpenAPI documents.
type Resource[T any, P object[T]] struct {
	client    rest.Interface
	name      string
	namespace string
}

func (r Resource[T, P]) request(verb *rest.Request) *rest.Request {
	return verb.NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.name)
}

// object does the request and decodes its answer.
func (r Resource[T, P]) object(ctx context.Context, req *rest.Request) (*T, error) {
	var into P = new(T)
	err := req.Do(ctx).Into(into)
	return (*T)(into), err
}

// Get reads an object.
func (r Resource[T, P]) Get(ctx context.Context, name string, o metav1.GetOptions) (*T, error) {
	req := r.request(r.client.Get()).Name(name)
	return r.object(ctx, req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion))
}

// Create creates an object.
func (r Resource[T, P]) Create(ctx context.Context, obj *T, o metav1.CreateOptions) (*T, error) {
	req := r.request(r.client.Post()).SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion)
	return r.object(ctx, req.Body(P(obj)))
}

// createBelow creates what stands for a subresource, such as "token", of the object of that name.
func (r Resource[T, P]) createBelow(
	ctx context.Context, name, subresource string, obj *T, o metav1.CreateOptions,
) (*T, error) {
	req := r.request(r.client.Post()).Name(name).SubResource(subresource)
	return r.object(ctx, req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion).Body(P(obj)))
}

// Update writes an object; it fails with a conflict where somebody else wrote it since it was read.
func (r Resource[T, P]) Update(ctx context.Context, obj *T, o metav1.UpdateOptions) (*T, error) {
	req := r.request(r.client.Put()).Name(P(obj).GetName())
	return r.object(ctx, req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion).Body(P(obj)))
}

// Patch applies a strategic merge patch to an object or to a subresource of it, such as "status".
func (r Resource[T, P]) Patch(
	ctx context.Context, name string, patch []byte, o metav1.PatchOptions, subresources ...string,
) (*T, error) {
	req := r.request(r.client.Patch(types.StrategicMergePatchType)).Name(name).SubResource(subresources...)
	return r.object(ctx, req.SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion).Body(patch))
}

// Delete removes an object.
func (r Resource[T, P]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.request(r.client.Delete()).Name(name).Body(&o).Do(ctx).Error()
}

// deleteAll removes the objects that the options select.
func (r Resource[T, P]) deleteAll(ctx context.Context, selected metav1.ListOptions) error {
	req := r.request(r.client.Delete()).SpecificallyVersionedParams(&selected, metav1.ParameterCodec, optionsVersion)
	return req.Body(&metav1.DeleteOptions{}).Do(ctx).Error()
}

// errNoAnswer stands for an end of the connection or a time-out, which rest.Request.Watch keeps to itself.
var errNoAnswer = errors.New("the server has ended the connection or didn't answer in time")

// Watch streams the changes of the objects that the options select. It is tried once: what failed is the caller's to
// know, who tries again when the server answers others.
func (r Resource[T, P]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := r.selected(o).MaxRetries(0).Watch(ctx)
	if err == nil && isEmpty(w) {
		return nil, errNoAnswer
	}
	return w, err
}

// isEmpty reports the watch that rest.Request.Watch returns for a failed connection.
func isEmpty(w watch.Interface) bool {
	return fmt.Sprintf("%T", w) == fmt.Sprintf("%T", watch.NewEmptyWatch())
}

// list reads the objects that the options select into a list of theirs, at one try.
func (r Resource[T, P]) list(ctx context.Context, o metav1.ListOptions, into runtime.Object) (runtime.Object, error) {
	err := r.selected(o).MaxRetries(0).Do(ctx).Into(into)
	return into, err
}

func (r Resource[T, P]) selected(o metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	req := r.request(r.client.Get()).SpecificallyVersionedParams(&o, metav1.ParameterCodec, optionsVersion)
	return req.Timeout(timeout)
}

// source lists and watches the objects that selected, which completes the options, leaves.
func (r Resource[T, P]) source(newList func() runtime.Object, selected func(*metav1.ListOptions)) source {
	return source{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selected(&o)
			return r.list(ctx, o, newList())
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selected(&o)
			return r.Watch(ctx, o)
		},
	}
}
