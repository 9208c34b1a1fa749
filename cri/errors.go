package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is a failed call to the runtime.
type Error struct {
	// Call is the CRI's name of the call, Object what it was about: an ID, a pod or an image.
	Call, Object string
	Endpoint     string
	Code         codes.Code
	// Timeout is the call's deadline where that is what ended it.
	Timeout time.Duration
	err     error
}

// newError is the error of a call within callCtx, which bounds the caller's ctx by the call's deadline. A runtime may
// answer DeadlineExceeded too, where a limit of its own has ended: containerd gives a shim 2 s.
func newError(ctx, callCtx context.Context, op operation, err error) error {
	e := &Error{Call: op.name, Object: op.object, Endpoint: op.endpoint, Code: status.Code(err), err: err}
	if e.Code == codes.DeadlineExceeded && ctx.Err() == nil && over(callCtx) {
		e.Timeout = op.timeout
	}
	if (e.Code == codes.Canceled || e.Code == codes.DeadlineExceeded) && ctx.Err() != nil {
		e.err = context.Cause(ctx)
	}
	return e
}

// over reports whether the call has had its time. The runtime, which knows the deadline, may end the call at the same
// moment, before the context has taken note of it.
func over(callCtx context.Context) bool {
	deadline, limited := callCtx.Deadline()
	return callCtx.Err() != nil || limited && !deadline.After(time.Now())
}

// Error says what failed, on which object, and what to do where that isn't the runtime's own answer.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("CRI " + e.Call)
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	b.WriteString(": ")
	message := e.Message()
	switch {
	case e.Timeout > 0:
		fmt.Fprintf(&b, "the runtime at %s gave no answer within %s; see whether it hangs (its log, crictl info)",
			e.Endpoint, e.Timeout)
	case e.Code == codes.DeadlineExceeded && errors.Is(e.err, context.DeadlineExceeded):
		// The caller had less patience than the configuration has.
		fmt.Fprintf(&b, "the runtime at %s gave no answer in time; see whether it hangs (its log, crictl info)", e.Endpoint)
	case e.Code == codes.Unavailable:
		fmt.Fprintf(&b, "the runtime at %s can't be reached: %s; check that it runs and that containerRuntimeEndpoint "+
			"names its socket",
			e.Endpoint, message)
	case e.Code == codes.Unimplemented:
		fmt.Fprintf(&b, "the runtime at %s doesn't offer this call: %s", e.Endpoint, message)
	default:
		b.WriteString(message)
	}
	return b.String()
}

// Message is the runtime's own text, without gRPC's wrapping.
func (e *Error) Message() string {
	if s, ok := status.FromError(e.err); ok {
		return s.Message()
	}
	return e.err.Error()
}

// Unwrap gives the gRPC error, or the cause of a cancelled context.
func (e *Error) Unwrap() error { return e.err }

// GRPCStatus keeps the code for status.Code and status.FromError.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Message()) }

// IsNotFound reports whether the object is unknown to the runtime.
func IsNotFound(err error) bool { return code(err) == codes.NotFound }

// IsUnavailable reports whether the runtime can't be reached.
func IsUnavailable(err error) bool { return code(err) == codes.Unavailable }

// IsDeadline reports whether the call had no answer in time, or the runtime says that it had none from another part:
// what was asked for may still happen.
func IsDeadline(err error) bool {
	return code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

// IsUnimplemented reports whether the runtime doesn't know the call.
func IsUnimplemented(err error) bool { return code(err) == codes.Unimplemented }

func code(err error) codes.Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return codes.OK
}
