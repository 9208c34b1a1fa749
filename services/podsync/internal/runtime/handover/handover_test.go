package handover

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// kept is a connection that says when it is dropped.
type kept struct {
	name    string
	hungUp  bool
	dropped *[]string
}

func (k kept) HungUp() bool { return k.hungUp }
func (k kept) Drop()        { *k.dropped = append(*k.dropped, k.name) }

func TestConnectionsAreHandedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		var dropped []string
		expect := func(when, want string) {
			t.Helper()
			if got := strings.Join(dropped, " "); got != want {
				t.Errorf("%s: dropped are [%s], want [%s]", when, got, want)
			}
			dropped = nil
		}
		many := []kept{{"over", true, &dropped}}
		for i := range maxInherited + 2 {
			many = append(many, kept{fmt.Sprint(i), false, &dropped})
		}
		in := Take(many, time.Minute, log)
		expect("at the start", "over 0 1")
		if !in.Settling() {
			t.Error("calls of the earlier process may be under way")
		}
		time.Sleep(settleTime)
		if in.Settling() {
			t.Errorf("what fails after %s has failed", settleTime)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		in.Run(ctx)
		expect("at an early end", "") // the next process gets them
		in.Run(t.Context())
		expect("when all calls have ended", "2 3 4 5 6 7 8 9")

		if Take(many[:1], time.Minute, log).Settling() {
			t.Error("nothing can be under way on a connection that the runtime has closed")
		}
		if Take([]kept(nil), 0, log).Settling() {
			t.Error("nothing was inherited")
		}
	})
}
