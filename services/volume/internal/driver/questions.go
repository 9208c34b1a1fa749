package driver

import (
	"context"
	"errors"
	"fmt"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// AskContext bounds a question that changes nothing.
func AskContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, askLimit, fmt.Errorf("the driver has not answered for %s", askLimit))
}

// CallContext is of a call that isn't broken off because its pod has ended: the driver would go on with it, and nobody
// would know its outcome.
func CallContext(ctx context.Context) (context.Context, func()) {
	calling, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	limited, release := context.WithTimeoutCause(calling, callLimit,
		fmt.Errorf("the driver has not answered for %s", callLimit))
	stop := context.AfterFunc(ctx, func() {
		if why := context.Cause(ctx); !errors.Is(why, plugin.ErrTerminated) {
			cancel(why)
		}
	})
	return limited, func() {
		stop()
		release()
		cancel(nil)
	}
}

// Usage checks what a driver says.
func Usage(answer *csiapi.NodeGetVolumeStatsResponse) (u topic.VolumeUsageReply, err error) {
	for _, entry := range answer.GetUsage() {
		amount := topic.VolumeAmount{Total: entry.GetTotal(), Available: entry.GetAvailable(), Used: entry.GetUsed()}
		if amount.Total < 0 || amount.Available < 0 || amount.Used < 0 {
			return u, fmt.Errorf("the driver says that of %d %s %d are used and %d available (NodeGetVolumeStats)",
				amount.Total, entry.GetUnit(), amount.Used, amount.Available)
		}
		switch entry.GetUnit() {
		case csiapi.VolumeUsage_BYTES:
			u.Bytes = amount
		case csiapi.VolumeUsage_INODES:
			u.Inodes = amount
		}
	}
	return u, nil
}
