package cli

import (
	"context"
	"errors"
	"fmt"

	"kubelot.dev/bus"
)

// ask calls a daemon, and says what a person can do if it isn't there. A context without a deadline gets one.
func ask[Req, Resp any](ctx context.Context, conn *bus.Conn, daemon string, call bus.Call[Req, Resp], req Req,
) (Resp, error) {
	limited := ctx
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, busPatience)
		defer cancel()
	}
	resp, err := call.Do(limited, conn, req)
	switch {
	case err == nil || errors.Is(ctx.Err(), context.Canceled):
		return resp, err
	case errors.Is(err, bus.ErrUnavailable) || limited.Err() != nil:
		return resp, fmt.Errorf("kubelot-%s doesn't answer: %w: if it has just been restarted, try again; else see "+
			"systemctl status kubelot-%s, or kubelot doctor", daemon, err, daemon)
	}
	if said := errors.Unwrap(err); said != nil {
		err = said // without the name of the call, which says nothing to a person
	}
	return resp, err
}
