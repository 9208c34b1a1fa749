package daemon

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
)

// told collects what a roster tells its supervisor.
type told struct {
	mu   sync.Mutex
	list []string
}

func (n *told) notify(message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, strings.ReplaceAll(message, "\n", " "))
}

// since is what was told since the last call.
func (n *told) since() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return strings.Join(list, " | ")
}

func TestRosterIsReadyOnceAndSummarises(t *testing.T) {
	n := &told{}
	r := newRoster(n.notify, []string{"bus", "podsync", "gc"})
	bus, podsync, gc := r.members[0], r.members[1], r.members[2]
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { bus.state(topic.Healthy, "") }, "STATUS=podsync starting; gc starting"},
		{func() { gc.state(topic.Stopped, "no disk") }, "STATUS=podsync starting; gc stopped: no disk"},
		{func() { podsync.state(topic.Healthy, "") }, "STATUS=gc stopped: no disk"},
		{func() { gc.state(topic.Degraded, "two\nlines") }, "READY=1 STATUS=gc degraded: two lines"},
		{func() { gc.state(topic.Healthy, "") }, "STATUS=healthy"},
		{func() { gc.state(topic.Healthy, "") }, ""},
		{func() { bus.state(topic.Stopped, ""); bus.state(topic.Healthy, "") }, "STATUS=bus stopped | STATUS=healthy"},
		{func() { podsync.stopping() }, ""},
	} {
		step.do()
		if got := n.since(); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
}

// systemd ignores a notification of more than 4,096 bytes. Each member that isn't well is in it all the same.
func TestManyLongReasonsFitANotification(t *testing.T) {
	n := &told{}
	r := newRoster(n.notify, []string{"bus", "podsync", "gc"})
	for _, s := range r.members {
		s.state(topic.Degraded, strings.Repeat("ü", maxMessage/2))
	}
	list := n.list
	for _, message := range list {
		if len(message) > 4096 || !utf8.ValidString(message) {
			t.Errorf("told %d bytes: %q", len(message), message)
		}
	}
	last := list[len(list)-1]
	if !strings.HasPrefix(last, "READY=1 STATUS=bus degraded: ü") || !strings.Contains(last, "; gc degraded: ü") {
		t.Errorf("told %q", last)
	}
}

func TestRosterFeedsTheWatchdogWhileAllThatRunBeat(t *testing.T) {
	n := &told{}
	r := newRoster(n.notify, []string{"a", "b"})
	a, b := r.members[0], r.members[1]
	const fed = "WATCHDOG=1"
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { a.alive() }, ""}, // nobody runs yet
		{func() { a.enter(); b.enter() }, ""},
		{func() { a.alive() }, fed}, // that b has begun counts as its beat
		{func() { a.alive(); a.alive() }, ""},
		{func() { b.alive() }, fed},
		{func() { a.alive() }, ""},
		{func() { b.leave() }, fed}, // it failed: nobody waits for it
		{func() { a.alive() }, fed},
		{func() { b.enter(); a.alive() }, fed}, // and again and again
		{func() { b.leave() }, ""},             // a hasn't beaten since
		{func() { b.enter(); a.alive() }, fed},
		{func() { a.alive() }, ""}, // now it hangs
		{func() { a.leave(); b.leave() }, ""},
	} {
		step.do()
		if got := n.since(); got != step.want {
			t.Errorf("step %d: told %q, want %q", i, got, step.want)
		}
	}
}

// One loop that hangs silences the watchdog of the group, although the other beats on.
func TestALoopThatHangsSilencesTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Setenv("WATCHDOG_USEC", "60000000")
		n := &told{}
		r := newRoster(n.notify, []string{"hangs", "works"})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i, name := range []string{"hangs", "works"} {
			spec := Spec{Name: name, Run: func(ctx context.Context, env Env) error {
				loop := make(chan func())
				env.Pulse.Of(ctx, loop)
				hang := make(<-chan time.Time)
				if name == "hangs" {
					hang = time.After(70 * time.Second)
				}
				for {
					select {
					case f := <-loop:
						f()
					case <-hang:
						<-ctx.Done()
					case <-ctx.Done():
						return nil
					}
				}
			}}
			conn := bus.NewConn(&recorder{}, name, slog.New(slog.DiscardHandler))
			defer conn.Close()
			env := newEnv(spec, conn, r.members[i], slog.New(slog.DiscardHandler))
			env.Config = &config.Config{}
			r.members[i].enter()
			all.Go(func() {
				defer r.members[i].leave()
				_ = RunWith(ctx, spec, env)
			})
		}
		fed := func(after time.Duration) int {
			time.Sleep(after)
			synctest.Wait()
			return strings.Count(n.since(), "WATCHDOG=1")
		}
		if got := fed(65 * time.Second); got < 2 {
			t.Errorf("fed %d times in 65 s, want every 30 s", got)
		}
		if got := fed(30 * time.Second); got > 1 { // what beat before it hung may count once more
			t.Errorf("fed %d times right after a loop had begun to hang", got)
		}
		if got := fed(10 * time.Minute); got > 0 {
			t.Errorf("fed %d times while a loop hung", got)
		}
		cancel()
		all.Wait()
	})
}

func TestLibrariesLogAtTheHighestVerbosity(t *testing.T) {
	l := &libraries{by: map[string]klogLevel{}}
	levels := func() (got []klogLevel) {
		for _, step := range []struct {
			daemon string
			level  klogLevel
		}{{"a", 4}, {"b", 6}, {"a", 0}, {"b", 0}} {
			l.set(step.daemon, step.level)
			got = append(got, libraryVerbosity())
		}
		return got
	}()
	if want := []klogLevel{4, 6, 6, 0}; !slices.Equal(levels, want) {
		t.Errorf("verbosities %v, want %v", levels, want)
	}
}
