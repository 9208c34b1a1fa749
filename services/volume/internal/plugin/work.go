package plugin

import (
	"context"

	"kubelot.dev/bus/topic"
)

// work is what a call to a driver is told of the volume for which it is made, through the context.
type work struct {
	// calling is told of each call, and by nil of its end.
	calling  func(*topic.DriverCall)
	migrated bool
}

type workKey struct{}

func workOf(ctx context.Context) work {
	w, _ := ctx.Value(workKey{}).(work)
	return w
}

// Watched has calling told of each call to a driver that is made with the context, and by nil of its end.
func Watched(ctx context.Context, calling func(*topic.DriverCall)) context.Context {
	w := workOf(ctx)
	w.calling = calling
	return context.WithValue(ctx, workKey{}, w)
}

// Migrated says that the volume is one of a kind that has become a CSI driver's.
func Migrated(ctx context.Context) context.Context {
	w := workOf(ctx)
	w.migrated = true
	return context.WithValue(ctx, workKey{}, w)
}

// Call is for a call to a driver: ended is to be called when it has ended, and migrated reports whether the volume is
// one of a kind that has become the driver's.
func Call(ctx context.Context, c topic.DriverCall) (ended func(), migrated bool) {
	w := workOf(ctx)
	if w.calling == nil {
		return func() {}, w.migrated
	}
	w.calling(&c)
	return func() { w.calling(nil) }, w.migrated
}
