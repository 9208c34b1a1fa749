package kube

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Change is what a reader of a watch sees: an object's latest state, its removal, or the end of the first list.
type Change[T any] struct {
	// Object is the object, without managedFields; for a removal its last known state. It is shared: don't change it.
	Object *T
	// Deleted is true for an object that is gone; the reader may never have seen it.
	Deleted bool
	// Synced marks that every object that existed has been delivered; Object is then nil. It comes again
	// after each new list, such as after an outage.
	Synced bool
}

// WatchPods delivers the pods that are bound to the node until ctx ends, when the channel is closed.
func (c *Client) WatchPods(ctx context.Context, nodeName string) <-chan Change[corev1.Pod] {
	bound := fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	src := c.pods(corev1.NamespaceAll).source(func() runtime.Object { return new(corev1.PodList) },
		func(o *metav1.ListOptions) { o.FieldSelector = bound })
	return stream[corev1.Pod](ctx, c, src, "pods")
}

// WatchServices delivers the services of all namespaces that have a cluster IP: headless ones, which
// give no environment variables, are left out by the API server.
func (c *Client) WatchServices(ctx context.Context) <-chan Change[corev1.Service] {
	services := Resource[corev1.Service, *corev1.Service]{client: c.core, name: "services"}
	src := services.source(func() runtime.Object { return new(corev1.ServiceList) },
		func(o *metav1.ListOptions) { o.LabelSelector = "!" + corev1.IsHeadlessService })
	return stream[corev1.Service](ctx, c, src, "services")
}

// WatchNode delivers one Node.
func (c *Client) WatchNode(ctx context.Context, name string) <-chan Change[corev1.Node] {
	src := c.nodes().source(func() runtime.Object { return new(corev1.NodeList) }, named(name))
	return stream[corev1.Node](ctx, c, src, "nodes")
}

// WatchRuntimeClasses delivers all RuntimeClasses.
func (c *Client) WatchRuntimeClasses(ctx context.Context) <-chan Change[nodev1.RuntimeClass] {
	classes := Resource[nodev1.RuntimeClass, *nodev1.RuntimeClass]{client: c.node, name: "runtimeclasses"}
	src := classes.source(func() runtime.Object { return new(nodev1.RuntimeClassList) }, func(*metav1.ListOptions) {})
	return stream[nodev1.RuntimeClass](ctx, c, src, "runtimeclasses")
}

// WatchCSIDrivers delivers all CSIDrivers.
func (c *Client) WatchCSIDrivers(ctx context.Context) <-chan Change[storagev1.CSIDriver] {
	drivers := Resource[storagev1.CSIDriver, *storagev1.CSIDriver]{client: c.storage, name: "csidrivers"}
	src := drivers.source(func() runtime.Object { return new(storagev1.CSIDriverList) }, func(*metav1.ListOptions) {})
	return stream[storagev1.CSIDriver](ctx, c, src, "csidrivers")
}

// named selects the one object of that name.
func named(name string) func(*metav1.ListOptions) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	return func(o *metav1.ListOptions) { o.FieldSelector = only }
}

// stream runs a reflector and delivers its changes. The goroutines end with ctx, and the channel is
// closed once they have.
func stream[T any, P object[T]](ctx context.Context, c *Client, src source, resource string) <-chan Change[T] {
	q := newQueue[types.UID, Change[T]]()
	out := make(chan Change[T])
	var wg sync.WaitGroup
	wg.Go(func() { reflect[T, P](ctx, src, changes[T, P](q), c.reporter("resource", resource)) })
	wg.Go(func() { q.pump(ctx, out) })
	go func() {
		wg.Wait()
		close(out)
	}()
	return out
}

// changes is the sink that queues changes. It remembers the objects it has seen, by UID, to tell after a
// new list which of them are gone.
func changes[T any, P object[T]](q *queue[types.UID, Change[T]]) sink[T] {
	known := map[types.UID]*T{}
	set := func(o *T) {
		known[P(o).GetUID()] = o
		q.put(P(o).GetUID(), Change[T]{Object: o})
	}
	remove := func(o *T) {
		delete(known, P(o).GetUID())
		q.put(P(o).GetUID(), Change[T]{Object: o, Deleted: true})
	}
	return sink[T]{
		set:    set,
		remove: remove,
		replace: func(all []*T) {
			listed := make(map[types.UID]bool, len(all))
			for _, o := range all {
				listed[P(o).GetUID()] = true
			}
			for uid, o := range known {
				if !listed[uid] {
					remove(o)
				}
			}
			for _, o := range all {
				last := known[P(o).GetUID()]
				if last == nil || P(last).GetResourceVersion() != P(o).GetResourceVersion() {
					set(o)
				}
			}
			q.mark(Change[T]{Synced: true})
		},
	}
}
