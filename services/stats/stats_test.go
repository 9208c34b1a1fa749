package stats

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
	"kubelot.dev/services/stats/internal/kmsg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noKills is a kernel that kills nothing.
func noKills(ctx context.Context, _ func(kmsg.Kill)) error {
	<-ctx.Done()
	return nil
}

// health keeps the last state.
type health struct {
	mu      sync.Mutex
	state   topic.HealthState
	message string
}

func (h *health) Set(state topic.HealthState, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.state, h.message = state, message
}

func (h *health) why() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.message
}

func (h *health) get() topic.HealthState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

func TestFactsArePublishedWhenTheyChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		conn, reader := b.Conn("stats"), b.Conn("lease")
		defer conn.Close()
		defer reader.Close()
		var mu sync.Mutex
		machine, failure := topic.Machine{NumCores: 2}, error(nil)
		read := func() (topic.Machine, error) {
			mu.Lock()
			defer mu.Unlock()
			return machine, failure
		}
		ctx, cancel := context.WithCancel(t.Context())
		h := &health{}
		done := make(chan error)
		go func() {
			s, err := New(daemon.Env{Bus: conn, Log: slog.New(slog.DiscardHandler), Health: h, Config: &config.Config{}},
				Ports{Machine: read, FSRoot: t.TempDir(), Kills: noKills})
			if err == nil {
				err = s.Run(ctx)
			}
			done <- err
		}()
		changes, err := topic.NodeMachine.Watch(ctx, reader)
		if err != nil {
			t.Fatal(err)
		}
		var messages int
		var last topic.Machine
		take := func() {
			for {
				synctest.Wait()
				select {
				case c := <-changes:
					if !c.Synced {
						messages++
						last = c.Value
					}
				default:
					return
				}
			}
		}
		take()
		time.Sleep(time.Hour)
		take()
		if messages != 1 || last.NumCores != 2 || h.get() != topic.Healthy {
			t.Errorf("%d messages, the last with %d cores, %s; want one with 2, healthy", messages, last.NumCores, h.get())
		}
		mu.Lock()
		machine.NumCores, failure = 4, errors.New("swap: no such file")
		mu.Unlock()
		time.Sleep(interval)
		take()
		if messages != 2 || last.NumCores != 4 || h.get() != topic.Degraded {
			t.Errorf("%d messages, the last with %d cores, %s; want a second with 4, degraded", messages, last.NumCores, h.get())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A root directory that hangs keeps the daemon from telling of the machine, and from nothing else.
func TestARootDirectoryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		conn := b.Conn("stats")
		defer conn.Close()
		hang := make(chan struct{})
		defer close(hang)
		h := &health{}
		s, err := New(daemon.Env{Bus: conn, Log: slog.New(slog.DiscardHandler), Health: h, Config: &config.Config{}},
			Ports{
				Machine: func() (topic.Machine, error) { <-hang; return topic.Machine{}, nil },
				FSRoot:  t.TempDir(), Kills: noKills,
			})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(patience + time.Second)
		asked, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err := s.view(asked, nil); err != nil {
			t.Errorf("the loop doesn't answer: %v", err)
		}
		if h.get() != topic.Degraded {
			t.Error("the daemon says that it is healthy")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
