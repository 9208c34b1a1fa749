package bus_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// The caller gets the kind that the outermost error has, whatever the errors below it are.
func TestTheOutermostKindCrossesTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		server, caller := b.Conn("gc"), b.Conn("cli")
		defer server.Close()
		defer caller.Close()
		ctx, cancel := context.WithCancel(t.Context())
		failure, served := make(chan error, 1), make(chan error, 1)
		go func() {
			served <- topic.GCPlan.Serve(ctx, server, func(context.Context, topic.GCPlanRequest) (topic.GCPlanReply, error) {
				return topic.GCPlanReply{}, <-failure
			})
		}()
		synctest.Wait()
		kinds := []error{bus.ErrNotFound, bus.ErrRefused, bus.ErrInvalid, bus.ErrBusy, bus.ErrUnavailable}
		for _, outer := range kinds {
			for _, inner := range kinds {
				for shape, err := range shapes(outer, inner) {
					failure <- err
					_, got := topic.GCPlan.Do(ctx, caller, topic.GCPlanRequest{})
					if same := errors.Is(outer, inner); !errors.Is(got, outer) || !same && errors.Is(got, inner) {
						t.Errorf("%s, %v around %v: the caller got %v", shape, outer, inner, got)
					}
				}
			}
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// shapes are errors of two kinds.
func shapes(outer, inner error) map[string]error {
	cause := errors.New("cause")
	within := bus.WithKind(inner, cause)
	return map[string]error{
		"a kind around a kind":  bus.WithKind(outer, within),
		"wrapped in between":    fmt.Errorf("a: %w", bus.WithKind(outer, fmt.Errorf("b: %w", within))),
		"the first of two":      fmt.Errorf("%w: %w", outer, inner),
		"joined":                errors.Join(cause, bus.WithKind(outer, cause), inner),
		"the kinds themselves":  errors.Join(outer, inner),
		"in a branch that ends": errors.Join(errors.Join(cause, outer), inner),
	}
}
