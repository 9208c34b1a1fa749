package slots

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestOlderPodsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		release, err := s.Acquire(t.Context(), 9)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan uint64, 3)
		for _, rank := range []uint64{3, 1, 2} {
			go func() {
				free, err := s.Acquire(t.Context(), rank)
				if err == nil {
					order <- rank
					free()
				}
			}()
			synctest.Wait()
		}
		release()
		got := []uint64{<-order, <-order, <-order}
		if !slices.Equal(got, []uint64{1, 2, 3}) {
			t.Errorf("served in the order %v, want 1 2 3", got)
		}
	})
}

func TestACancelledCallerTakesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		release, _ := s.Acquire(t.Context(), 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, 2)
			failed <- err
		}()
		synctest.Wait()
		reason := errors.New("pod is deleted")
		cancel(reason)
		if err := <-failed; !errors.Is(err, reason) {
			t.Errorf("got %v, want the cause of the cancellation", err)
		}
		release()
		if again, err := s.Acquire(t.Context(), 3); err != nil {
			t.Errorf("the slot was lost: %v", err)
		} else {
			again()
		}
	})
}
