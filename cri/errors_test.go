package cri

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// due is a context whose deadline has come, and which hasn't taken note of that.
type due struct{ context.Context }

func (due) Deadline() (time.Time, bool) { return time.Now(), true }

func TestARuntimeThatEndsACallAtItsDeadline(t *testing.T) {
	op := operation{name: "ListContainers", timeout: time.Second}
	ended := status.Error(codes.DeadlineExceeded, "stream terminated by RST_STREAM with error code: CANCEL")
	if err := newError(t.Context(), due{t.Context()}, op, ended); !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("%v isn't taken for the end of the call's time", err)
	}
	// Containerd gives a shim less time than it has itself.
	if err := newError(t.Context(), t.Context(), op, ended); strings.Contains(err.Error(), "no answer within") {
		t.Errorf("%v is taken for the end of the call's time", err)
	}
}
