package slots

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestOlderPodsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		release, err := s.Acquire(t.Context(), Turn{Rank: 9}, Network)
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan uint64, 3)
		for _, rank := range []uint64{3, 1, 2} {
			go func() {
				free, err := s.Acquire(t.Context(), Turn{Rank: rank}, Network)
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
		release, _ := s.Acquire(t.Context(), Turn{Rank: 1}, Network)
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := s.Acquire(ctx, Turn{Rank: 2}, Network)
			failed <- err
		}()
		synctest.Wait()
		reason := errors.New("pod is deleted")
		cancel(reason)
		if err := <-failed; !errors.Is(err, reason) {
			t.Errorf("got %v, want the cause of the cancellation", err)
		}
		release()
		if again, err := s.Acquire(t.Context(), Turn{Rank: 3}, Network); err != nil {
			t.Errorf("the slot was lost: %v", err)
		} else {
			again()
		}
	})
}

// Who waits for something, such as a network plug-in that isn't there yet, mustn't keep the pod from starting that it
// waits for.
func TestASlotThatIsHeldLongIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		stuck, _ := s.Acquire(t.Context(), Turn{Rank: 1}, Network)
		began := time.Now()
		release, err := s.Acquire(t.Context(), Turn{Rank: 2}, Network)
		if took := time.Since(began); err != nil || took != Network.Most {
			t.Fatalf("got %v after %s, want the slot after %s", err, took, Network.Most)
		}
		stuck() // isn't given back a second time
		ctx, cancel := context.WithTimeout(t.Context(), Network.Most/2)
		defer cancel()
		if _, err := s.Acquire(ctx, Turn{Rank: 3}, Network); err == nil {
			t.Error("two hold one slot")
		}
		release()
		if _, err := s.Acquire(t.Context(), Turn{Rank: 4}, Network); err != nil {
			t.Errorf("the slot was lost: %v", err)
		}
	})
}

// A start that takes its time on a slow disk doesn't let more of them in. One that hangs does, in the end.
func TestPatienceIsTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(1)
		if _, err := s.Acquire(t.Context(), Turn{Rank: 1}, Disk); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := s.Acquire(t.Context(), Turn{Rank: 2}, Network)
		if took := time.Since(began); err != nil || took != Disk.Most {
			t.Errorf("got %v after %s, want the slot after %s", err, took, Disk.Most)
		}
	})
}
