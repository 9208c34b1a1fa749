package kube

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The delay before a list or watch that the server refuses is tried again: from 50 ms, for a node authorizer that
// doesn't know of a new pod yet, up to 5 to 10 s. A server that doesn't answer is asked as outage says.
const (
	reflectDelay    = 50 * time.Millisecond
	reflectDelayMax = 5 * time.Second
)

// object is a pointer to an API type.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// source lists and watches one collection at the API server.
type source struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	// asked is called with the outcome of each request, and wait after a failure: it returns true when the source should
	// ask again, and false if the reflector should handle the failure.
	asked func(error)
	wait  func(context.Context, error) bool
}

func (s source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

func (s source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// ListWithContext repeats the request until the server answers. The reflector doesn't see an outage: its pause could
// last longer than the rest of it.
func (s source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	for {
		list, err := s.listOnce(ctx, o)
		if ctx.Err() != nil {
			return list, err
		}
		s.asked(err)
		if err == nil || !s.wait(ctx, err) {
			return list, err
		}
	}
}

func (s source) listOnce(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return s.list(ctx, o)
}

// WatchWithContext has the reflector list again after an outage: the server may be one that was restored to an earlier
// state, and a watch from a later one would be silent.
func (s source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.watch(ctx, o)
	if ctx.Err() != nil {
		return w, err
	}
	s.asked(err)
	if err != nil && s.wait(ctx, err) {
		return nil, apierrors.NewResourceExpired("the API server didn't answer")
	}
	return w, err
}

// IsWatchListSemanticsUnSupported keeps the reflector to LIST and WATCH. A streamed list waits for the
// server's cache to prove itself fresh, which takes up to 100 ms; a pod's start can't wait for that.
func (s source) IsWatchListSemanticsUnSupported() bool { return true }

// sink is what a reflector feeds. Its functions are called by one goroutine, one at a time.
type sink[T any] struct {
	replace func(all []*T)
	set     func(*T)
	remove  func(*T)
	failed  func(error)
}

// reflect feeds s from src until ctx ends, over any outage.
func reflect[T any, P object[T]](ctx context.Context, src source, s sink[T], report *reporter) {
	// The reflector would write its failures to klog, each of them; the reporter logs each outage once.
	ctx = klog.NewContext(ctx, logr.Discard())
	src.asked = func(err error) {
		report.asked(err)
		if err != nil && s.failed != nil {
			s.failed(err)
		}
	}
	src.wait = report.whole.wait
	var example P = new(T)
	cache.NewReflectorWithOptions(src, example, store[T, P]{s}, cache.ReflectorOptions{
		Name: "kubelot",
		Backoff: &wait.Backoff{
			Duration: reflectDelay, Factor: 2, Jitter: 1, Cap: reflectDelayMax, Steps: 20,
		},
	}).RunWithContext(ctx)
}

// store turns the reflector's untyped calls into a sink's.
type store[T any, P object[T]] struct{ sink sink[T] }

func (s store[T, P]) Add(obj any) error    { return s.each(obj, s.sink.set) }
func (s store[T, P]) Update(obj any) error { return s.each(obj, s.sink.set) }
func (s store[T, P]) Delete(obj any) error { return s.each(obj, s.sink.remove) }
func (s store[T, P]) Resync() error        { return nil }

func (s store[T, P]) Replace(objs []any, _ string) error {
	all := make([]*T, 0, len(objs))
	for _, obj := range objs {
		if err := s.each(obj, func(o *T) { all = append(all, o) }); err != nil {
			return err
		}
	}
	s.sink.replace(all)
	return nil
}

// each hands obj over without its managedFields, which no daemon reads and which are often half of it.
func (s store[T, P]) each(obj any, f func(*T)) error {
	p, ok := obj.(P)
	if !ok {
		return errors.New("the API server answered with an object of another kind")
	}
	if p.GetManagedFields() != nil {
		p.SetManagedFields(nil)
	}
	f((*T)(p))
	return nil
}
