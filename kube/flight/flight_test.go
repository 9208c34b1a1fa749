package flight

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestOneRunForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		runs, failure := 0, errors.New("no")
		ended := make(chan error, 3)
		for _, key := range []string{"a", "a", "b"} {
			go func() {
				n, err := g.Do(t.Context(), key, func(context.Context) (int, error) {
					runs++
					time.Sleep(time.Second)
					return 7, failure
				})
				if n != 7 {
					t.Errorf("the result is %d", n)
				}
				ended <- err
			}()
			synctest.Wait()
		}
		if len(g.all) != 2 {
			t.Errorf("%d runs are under way", len(g.all))
		}
		for range 3 {
			if err := <-ended; !errors.Is(err, failure) {
				t.Errorf("error %v", err)
			}
		}
		if runs != 2 || len(g.all) != 0 {
			t.Errorf("%d runs, and %d under way", runs, len(g.all))
		}
		// The next one begins anew.
		if n, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 8, nil }); n != 8 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	})
}

func TestRunEndsWithItsLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		gone := errors.New("gone")
		var why error
		run := func(ctx context.Context) (int, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // it takes a while to end
			why = context.Cause(ctx)
			return 1, why
		}
		results := make(chan error, 2)
		wait := func() context.CancelCauseFunc {
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				_, err := g.Do(ctx, "a", run)
				results <- err
			}()
			synctest.Wait()
			return cancel
		}
		first, second := wait(), wait()
		first(gone)
		if err := <-results; !errors.Is(err, gone) || why != nil {
			t.Errorf("the first leaves with %v, and the run has ended with %v", err, why)
		}
		second(gone)
		synctest.Wait()
		if len(g.all) != 0 {
			t.Error("a run that is given up can be joined")
		}
		if err := <-results; !errors.Is(err, gone) || !errors.Is(why, ErrNobodyWaits) {
			t.Errorf("the last leaves with %v, and the run has ended with %v", err, why)
		}
	})
}
