package plugin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"kubelot.dev/bus/topic"
)

// work is what a call to a driver is told of the volume for which it is made, through the context.
type work struct {
	// calling is told of each call, and by nil of its end; nil where nobody is.
	calling func(*topic.DriverCall)
	// pod is the one for which the work is done; empty for none.
	pod string
	// call is the one under way, as it is told to those who wait for this work.
	call atomic.Pointer[topic.DriverCall]
}

type workKey struct{}

type (
	migratedKey struct{}
	observerKey struct{}
)

// observer takes how long an operation took and how it ended. The names of the plug-in and of the operation are the
// kubelet's.
type observer func(plugin, operation string, migrated bool, took time.Duration, err error)

// Observed has the operations observed that are done with the context.
func Observed(ctx context.Context, by observer) context.Context {
	return context.WithValue(ctx, observerKey{}, by)
}

// Operation begins an operation; ended is to be called with its outcome.
func Operation(ctx context.Context, operation, plugin string) (ended func(error)) {
	began := time.Now()
	return func(err error) {
		if observe, ok := ctx.Value(observerKey{}).(observer); ok {
			observe(plugin, operation, ctx.Value(migratedKey{}) != nil, time.Since(began), err)
		}
	}
}

func workOf(ctx context.Context) *work {
	if w, ok := ctx.Value(workKey{}).(*work); ok {
		return w
	}
	return &work{}
}

// Watched has calling, which may be nil, told of each call to a driver that is made with the context, and by nil of its
// end. While the work waits for a lock, these are the calls of the lock's holder. pod is the one for which the work is
// done; empty for none.
func Watched(ctx context.Context, pod string, calling func(*topic.DriverCall)) context.Context {
	return context.WithValue(ctx, workKey{}, &work{pod: pod, calling: calling})
}

// Migrated says that the volume is one of a kind that has become a CSI driver's. The work stays the same.
func Migrated(ctx context.Context) context.Context {
	return context.WithValue(ctx, migratedKey{}, true)
}

// Call is for a call to a driver: ended is to be called when it has ended, and migrated reports whether the volume is
// one of a kind that has become the driver's.
func Call(ctx context.Context, c topic.DriverCall) (ended func(), migrated bool) {
	w, others := workOf(ctx), c
	others.Pod = w.pod
	w.tell(&c, &others)
	return func() { w.tell(nil, nil) }, ctx.Value(migratedKey{}) != nil
}

// tell tells of a call, and of it as others see it.
func (w *work) tell(c, others *topic.DriverCall) {
	w.call.Store(others)
	if w.calling != nil {
		w.calling(c)
	}
}

// Waits says what is waited for while a call is under way.
func Waits(c *topic.DriverCall) string {
	since, pod := c.Since.UTC().Format("15:04:05 UTC"), ""
	if c.Pod != "" {
		pod = ", for the pod " + c.Pod
	}
	if c.Driver == "" {
		return fmt.Sprintf("%s has not ended since %s%s", c.Call, since, pod)
	}
	return fmt.Sprintf("the CSI driver %s has not answered %s since %s%s", c.Driver, c.Call, since, pod)
}
