package image

import (
	"context"
	"errors"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
)

// runtime is the part of the CRI that this package needs.
type runtime interface {
	RemoveImage(context.Context, *runtimeapi.ImageSpec) error
}

// Remove removes the chosen images that are still unused, and reports each to told. A choice that failed has its error,
// and err has all of them.
func Remove(ctx context.Context, r runtime, choices []Choice, usedBy func(*runtimeapi.Image) string,
	told func(Choice),
) (removed int, err error) {
	var errs []error
	for _, c := range choices {
		if c.Why == "" || ctx.Err() != nil {
			continue
		}
		by := usedBy(c.Image)
		if ctx.Err() != nil {
			break
		}
		if by != "" {
			c.Action, c.Reason, c.FreedBytes = topic.ActionKeep, "in use by "+by+", which started since", 0
			told(c)
			continue
		}
		spec := &runtimeapi.ImageSpec{Image: c.Image.GetId(), RuntimeHandler: c.Image.GetSpec().GetRuntimeHandler()}
		if err := r.RemoveImage(ctx, spec); err != nil {
			c.Error, c.FreedBytes = err.Error(), 0
			errs = append(errs, err)
		} else {
			removed++
		}
		told(c)
	}
	return removed, errors.Join(errs...)
}

// Size is a number of bytes as the kubelet's Event FreeDiskSpaceFailed has it.
func Size(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), 0
	for size >= 1<<10 && unit < 4 {
		size /= 1 << 10
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", size, " KMGT"[unit])
}
