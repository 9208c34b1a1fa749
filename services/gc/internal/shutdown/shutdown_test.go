package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

func TestAShutdownEndsTheGroupsInOrder(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.pod("web", 0, 60)
		r.pod("job", 1000, 5)
		r.pod("proxy", 2000001000, 60)
		r.announce(false)
		if !r.held() {
			t.Fatal("no lock is wanted")
		}
		began := time.Now()
		r.announce(true)
		if s := r.state(); !s.Active || s.Trigger != topic.ByLogind || len(s.Groups) != 2 || !s.Started.Equal(began) {
			t.Errorf("state %+v", s)
		}
		r.wantAsked("job 5", "web 20")
		if got := r.metric("kubelet_graceful_shutdown_start_time_seconds"); got != float64(began.Unix()) {
			t.Errorf("start time %v", got)
		}
		r.ends("web", "job")
		r.ready(false)
		r.over("job")
		r.is("web", topic.Terminated, false) // its volumes are mounted
		r.pass(time.Second)
		r.wantAsked()
		r.over("web")
		r.wantAsked("proxy 10")
		r.lacks(topic.UnwrittenReply{UIDs: []string{"proxy", "job", "gone"}})
		r.over("proxy")
		ended := time.Now()
		r.pass(2 * time.Second)
		if !r.held() || r.state().Ended.IsZero() {
			t.Errorf("the lock is held: %v, though statuses are unwritten; state %+v", r.held(), r.state())
		}
		r.lacks(topic.UnwrittenReply{})
		r.pass(flushEvery)
		if s := r.state(); r.held() || s.Done.IsZero() || s.Message != "" || !s.Active {
			t.Errorf("the lock is held: %v; state %+v", r.held(), s)
		}
		data, err := os.ReadFile(filepath.Join(r.dir, "graceful_node_shutdown_state"))
		want := fmt.Sprintf(`{"startTime":%q,"endTime":%q}`, began.Format(time.RFC3339Nano), ended.Format(time.RFC3339Nano))
		if err != nil || string(data) != want {
			t.Errorf("%s, %v; want %s", data, err, want)
		}
		if !slices.Equal(r.events, []string{"Node Shutdown: Shutdown manager detected shutdown event"}) {
			t.Errorf("events %q", r.events)
		}
	})
}

// The watchdog asks the loop, also in the middle of a shutdown.
func TestTheLoopAnswersTheWatchdog(t *testing.T) {
	inBubble(t, func(r *rig) {
		s, conn := r.service()
		defer conn.Close()
		ctx, cancel := context.WithCancel(r.t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.Run(ctx, func(error) {})
		}()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		r.pod("web", 0, 60)
		r.announce(true)
		r.wantAsked("web 20")
		answered := false
		s.Inbox() <- func() { answered = true }
		synctest.Wait()
		if !answered {
			t.Error("the loop has not run what it was given")
		}
	})
}

// The times of the last shutdown are metrics after the boot.
func TestTheTimesOutliveTheBoot(t *testing.T) {
	inBubble(t, func(r *rig) {
		text := `{"startTime":"2026-01-02T03:04:05.5Z","endTime":"2026-01-02T03:04:15Z"}`
		if err := os.WriteFile(filepath.Join(r.dir, "graceful_node_shutdown_state"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		stop := r.start()
		start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		if s, e := r.metric("kubelet_graceful_shutdown_start_time_seconds"),
			r.metric("kubelet_graceful_shutdown_end_time_seconds"); s != float64(start.Unix()) || e != s+10 {
			t.Errorf("start %v, end %v", s, e)
		}
		stop()
		if err := os.WriteFile(filepath.Join(r.dir, "graceful_node_shutdown_state"), []byte("nonsense"), 0o600); err != nil {
			t.Fatal(err)
		}
		r.start()
		if s := r.metric("kubelet_graceful_shutdown_start_time_seconds"); s != 0 ||
			!strings.Contains(r.log.String(), "graceful_node_shutdown_state") {
			t.Errorf("start %v; log %s", s, r.log.String())
		}
	})
}

// A process that is killed in the middle is followed by one that goes on with the same times.
func TestTheNextProcessGoesOn(t *testing.T) {
	inBubble(t, func(r *rig) {
		stop := r.start()
		r.pod("web", 0, 60)
		r.pod("proxy", 2000001000, 60)
		r.announce(true)
		r.wantAsked("web 20")
		r.ends("web")
		r.pass(15 * time.Second)
		stop()
		r.pass(time.Second)
		r.start()
		r.announce(true)
		r.wantAsked("web 4") // podsync shortens nothing that ends sooner
		r.pass(4 * time.Second)
		r.wantAsked("proxy 10")
		if len(r.events) != 1 {
			t.Errorf("events %q", r.events)
		}
		r.ends("proxy")
		r.over("web", "proxy")
		r.ready(false)
		r.pass(flushEvery)
		if r.held() {
			t.Error("the lock is held")
		}
	})
}

// It was cancelled while no process was there to hear it.
func TestACancellationThatNobodyHeard(t *testing.T) {
	inBubble(t, func(r *rig) {
		stop := r.start()
		r.pod("web", 0, 60)
		r.announce(true)
		r.wantAsked("web 20")
		stop()
		r.tell = nil
		r.start()
		r.announce(false)
		r.pass(time.Second)
		if s := r.state(); s.Active || !r.held() {
			t.Errorf("state %+v, the lock is held: %v", s, r.held())
		}
	})
}

// What the bus has of another boot is over.
func TestAShutdownOfAnotherBootIsOver(t *testing.T) {
	inBubble(t, func(r *rig) {
		w := topic.NodeShutdown.Writer(r.others)
		r.must(w.Set("", topic.Shutdown{Active: true, BootID: "another", Started: time.Now(), Groups: r.groups}))
		r.pod("web", 0, 60)
		r.start()
		r.pass(time.Second)
		r.wantAsked()
		if s := r.state(); s.Active || !r.held() {
			t.Errorf("state %+v, the lock is held: %v", s, r.held())
		}
	})
}

func TestACancelledShutdownAsksNobodyElse(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.pod("web", 0, 60)
		r.pod("proxy", 2000001000, 60)
		r.announce(true)
		r.wantAsked("web 20")
		r.announce(false)
		r.over("web")
		r.pass(time.Minute)
		r.wantAsked()
		if s := r.state(); s.Active || !r.held() {
			t.Errorf("state %+v, the lock is held: %v", s, r.held())
		}
		if len(r.events) != 2 || r.events[1] != "Node Shutdown: Shutdown manager detected shutdown cancellation" {
			t.Errorf("events %q", r.events)
		}
		// The next one is another shutdown.
		r.announce(true)
		r.wantAsked("proxy 10")
	})
}

// podsync doesn't answer, or was started again and has forgotten.
func TestPodsyncIsAskedUntilItEndsThePod(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.must(r.health.Set("podsync", topic.DaemonHealth{State: topic.Healthy, Started: time.Now()}))
		r.pod("web", 0, 60)
		r.mu.Lock()
		r.busy = bus.WithKind(bus.ErrUnavailable, errors.New("podsync stops"))
		r.mu.Unlock()
		r.announce(true)
		r.pass(time.Second)
		r.mu.Lock()
		r.busy = nil
		r.mu.Unlock()
		r.pass(retryAsk)
		r.wantAsked("web 19")
		r.pass(againAfter) // it has not begun
		r.wantAsked("web 17")
		r.ends("web")
		r.pass(2 * againAfter)
		r.wantAsked()
		r.must(r.health.Set("podsync", topic.DaemonHealth{State: topic.Healthy, Started: time.Now()}))
		r.wantAsked("web 13")
	})
}

// The API server has the statuses for as long as the configuration says, or not at all.
func TestStatusesAreWaitedForWithinBounds(t *testing.T) {
	for name, c := range map[string]struct {
		lacks   topic.UnwrittenReply
		ready   bool
		least   time.Duration
		most    time.Duration
		message string
	}{
		"slow": {
			lacks: topic.UnwrittenReply{UIDs: []string{"web"}}, least: 29 * time.Second, most: 31 * time.Second,
			message: "default/web",
		},
		"away": {
			lacks: topic.UnwrittenReply{UIDs: []string{"web"}, Outage: "connection refused"}, least: 5 * time.Second,
			most: 7 * time.Second, message: "the API server can't be reached: connection refused",
		},
		"unready is unknown": {ready: true, least: 29 * time.Second, most: 31 * time.Second, message: "isn't Ready"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.start()
				r.pod("web", 0, 1)
				r.lacks(c.lacks)
				began := time.Now()
				r.announce(true)
				r.ready(c.ready)
				r.ends("web")
				r.over("web")
				for r.held() && time.Since(began) < time.Hour {
					r.pass(100 * time.Millisecond)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("the lock was held for %s, want %s to %s", took, c.least, c.most)
				}
				if s := r.state(); !strings.Contains(s.Message, c.message) {
					t.Errorf("message %q, want %q", s.Message, c.message)
				}
			})
		})
	}
}

// A pod that uses the whole time of the last group is reported, too: logind was asked for more.
func TestThereIsTimeForTheLastStatus(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.pod("proxy", 2000001000, 60)
		r.pod("web", 0, 60)
		r.lacks(topic.UnwrittenReply{UIDs: []string{"proxy"}})
		r.announce(true)
		r.ready(false)
		r.ends("web")
		r.pass(20 * time.Second)
		r.ends("proxy")
		r.over("web")
		r.pass(14 * time.Second)
		if !r.held() {
			t.Error("the lock was released before the status was written")
		}
		r.pass(time.Second)
		if r.held() {
			t.Error("the lock is held for longer than logind waits")
		}
	})
}

// Without logind a command begins and cancels it.
func TestACommandShutsDown(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.noLogin, r.groups = true, nil
		stop := r.start()
		r.pod("web", 0, 60)
		for text, err := range map[string]error{
			"no time is configured": r.ask(topic.StartShutdown),
			"isn't shutting down":   r.ask(topic.CancelShutdown),
			"want start or cancel":  r.ask("stop"),
			"priority 7 is -1 s":    r.ask(topic.StartShutdown, topic.ShutdownGroup{Priority: 7, GracePeriodSeconds: -1}),
		} {
			if err == nil || !strings.Contains(err.Error(), text) || !errors.Is(err, bus.ErrInvalid) {
				t.Errorf("error %v, want %q", err, text)
			}
		}
		r.must(r.ask(topic.StartShutdown, topic.ShutdownGroups(10*time.Second, 0)...))
		r.wantAsked("web 10")
		if s := r.state(); s.Trigger != topic.ByCommand || !s.Active {
			t.Errorf("state %+v", s)
		}
		r.must(r.ask(topic.StartShutdown)) // it is under way
		r.wantAsked()
		stop()
		r.pass(time.Second)
		r.start()
		r.wantAsked("web 9")
		r.must(r.ask(topic.CancelShutdown))
		if s := r.state(); s.Active {
			t.Errorf("state %+v", s)
		}
	})
}

// What a command has begun, a command cancels.
func TestLogindDoesntCancelACommand(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.pod("web", 0, 60)
		r.must(r.ask(topic.StartShutdown))
		r.wantAsked("web 20")
		r.announce(false)
		if !r.state().Active {
			t.Error("it was cancelled")
		}
		// The machine goes while it is under way: the same shutdown, and logind waits for it.
		r.announce(true)
		r.wantAsked()
		r.over("web")
		r.ready(false)
		r.pass(flushEvery)
		if r.held() {
			t.Error("the lock is held")
		}
		r.announce(false)
		if !r.state().Active {
			t.Error("it was cancelled")
		}
	})
}
