package loop_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run runs the loop until ctx ends.
func run(ctx context.Context, l *loop.Loop) {
	for {
		select {
		case <-ctx.Done():
			return
		case change := <-l.Changes():
			change()
		}
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		conn, writer := b.Conn("gc"), b.Conn("pleg")
		defer conn.Close()
		defer writer.Close()
		ctx, cancel := context.WithCancel(t.Context())
		l := loop.New(conn)
		pods := map[string]topic.PodObservation{}
		if err := loop.Follow(ctx, l, topic.PLEGEvent, loop.Into(pods)); err != nil {
			t.Fatal(err)
		}
		l.Go(func() { run(ctx, l) })
		updates := topic.PLEGEvent.Writer(writer)
		for _, step := range []struct {
			do   func() error
			want int
		}{
			{func() error { return updates.Set("a", topic.PodObservation{}) }, 1},
			{func() error { return updates.Set("b", topic.PodObservation{}) }, 2},
			{func() error { return updates.Delete("a") }, 1},
		} {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got, err := loop.Ask(ctx, l, func() map[string]topic.PodObservation { return maps.Clone(pods) })
			if err != nil || len(got) != step.want {
				t.Errorf("%v, %v; want %d", got, err, step.want)
			}
		}
		cancel()
		l.Wait()
	})
}

func TestNobodyWaitsForALoopThatHasEnded(t *testing.T) {
	l := loop.New(nil)
	cause := errors.New("it stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if l.Do(ctx, func() {}) {
		t.Error("nobody has taken it")
	}
	if _, err := loop.Ask(ctx, l, func() int { return 1 }); !errors.Is(err, cause) {
		t.Errorf("error %v, want the context's cause", err)
	}
}

func TestWhatIsInTheInboxIsRun(t *testing.T) {
	l := loop.New(nil)
	go func() { (<-l.Changes())() }()
	done := make(chan bool)
	l.Inbox() <- func() { close(done) }
	<-done
}

func TestWhatIsTakenIsAnswered(t *testing.T) {
	l := loop.New(nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		change := <-l.Changes()
		cancel()
		change()
	}()
	if got, err := loop.Ask(ctx, l, func() int { return 1 }); got != 1 || err != nil {
		t.Errorf("%d, %v; want the answer, although the context ends before it", got, err)
	}
}
