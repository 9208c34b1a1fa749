package plugin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/topic"
)

// Who waits for a lock is told what its holder is at, at once and as that changes, and says so where it gives up.
func TestWhoWaitsForALockIsToldOfTheHoldersCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks
		var own, told []string
		holder := Watched(t.Context(), "ns/holder", note(&own))
		giveBack, err := l.Take(holder, "v")
		must(t, err)
		ended, _ := Call(holder, topic.DriverCall{Driver: "d", Call: "NodeStageVolume", Since: time.Unix(0, 0)})
		ctx, cancel := context.WithCancelCause(Watched(t.Context(), "ns/waiter", note(&told)))
		failed := make(chan error)
		go func() {
			_, err := l.Take(ctx, "v")
			failed <- err
		}()
		synctest.Wait()
		const staging = "the CSI driver d has not answered NodeStageVolume since 00:00:00 UTC"
		wants(t, own, staging)
		wants(t, told, staging+", for the pod ns/holder")
		ended()
		ended, _ = Call(holder, topic.DriverCall{Call: "mkfs", Since: time.Unix(1, 0)})
		time.Sleep(askEvery)
		synctest.Wait()
		const made = "mkfs has not ended since 00:00:01 UTC"
		wants(t, own, staging, "nothing", made)
		wants(t, told, staging+", for the pod ns/holder", made+", for the pod ns/holder")
		cause := errors.New("enough")
		cancel(cause)
		const want = "other work on v goes on: enough: " + made + ", for the pod ns/holder"
		if err := <-failed; !errors.Is(err, cause) || err.Error() != want {
			t.Errorf("it gives up with %v", err)
		}
		// It may go on with something else.
		wants(t, told, staging+", for the pod ns/holder", made+", for the pod ns/holder", "nothing")

		told = nil
		got := make(chan error)
		go func() {
			again, err := l.Take(Watched(t.Context(), "ns/waiter", note(&told)), "v")
			if err == nil {
				again()
			}
			got <- err
		}()
		synctest.Wait()
		ended()
		giveBack()
		must(t, <-got)
		wants(t, told, made+", for the pod ns/holder", "nothing")
	})
}

// note notes what is told.
func note(list *[]string) func(*topic.DriverCall) {
	return func(c *topic.DriverCall) {
		if c == nil {
			*list = append(*list, "nothing")
		} else {
			*list = append(*list, Waits(c))
		}
	}
}

// The calls for a volume of a kind that has become a driver's are those of the work that has the lock.
func TestWhoWaitsIsToldOfTheCallsForAMigratedVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks
		var own, told []string
		holder := Watched(t.Context(), "ns/holder", note(&own))
		giveBack, err := l.Take(holder, "claim")
		must(t, err)
		ended, migrated := Call(Migrated(holder), topic.DriverCall{
			Driver: "d", Call: "NodeExpandVolume", Since: time.Unix(0, 0),
		})
		if !migrated {
			t.Error("the driver isn't told that the volume is migrated")
		}
		got := make(chan error)
		go func() {
			giveBack, err := l.Take(Watched(t.Context(), "ns/waiter", note(&told)), "claim")
			if err == nil {
				giveBack()
			}
			got <- err
		}()
		synctest.Wait()
		const growing = "the CSI driver d has not answered NodeExpandVolume since 00:00:00 UTC"
		wants(t, own, growing)
		wants(t, told, growing+", for the pod ns/holder")
		ended()
		giveBack()
		must(t, <-got)
		wants(t, own, growing, "nothing")
		wants(t, told, growing+", for the pod ns/holder", "nothing")
	})
}

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}
