package ttlcache

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source counts readings, each of which takes a second.
type source struct {
	mu   sync.Mutex
	n    int
	fail error
	hang bool
}

func (s *source) read(ctx context.Context) (int, error) {
	s.mu.Lock()
	s.n++
	n, fail, hang := s.n, s.fail, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return 0, context.Cause(ctx)
	}
	time.Sleep(time.Second)
	return n, fail
}

func (s *source) set(fail error, hang bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.hang = fail, hang
}

// bubble runs a test with a cell, in virtual time.
func bubble(t *testing.T,
	test func(t *testing.T, s *source, get func(ctx context.Context, maxAge time.Duration) Reading[int]),
) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g, s, c := NewGroup(ctx), &source{}, &Cell[int]{}
		test(t, s, func(ctx context.Context, maxAge time.Duration) Reading[int] {
			return c.Get(ctx, g, maxAge, time.Minute, s.read)
		})
		cancel()
		g.Wait(time.Hour)
	})
}

func TestShared(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, get func(context.Context, time.Duration) Reading[int]) {
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if r := get(t.Context(), 10*time.Second); r.Value != 1 || r.Err != nil {
					t.Errorf("%+v, want the first reading", r)
				}
			})
		}
		wg.Wait()
		time.Sleep(5 * time.Second)
		if r := get(t.Context(), 10*time.Second); r.Value != 1 {
			t.Errorf("%+v, want the one of 6 s ago", r)
		}
		if r := get(t.Context(), time.Second); r.Value != 2 {
			t.Errorf("%+v, want a new one", r)
		}
	})
}

func TestFailureKeepsTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, get func(context.Context, time.Duration) Reading[int]) {
		get(t.Context(), time.Second)
		s.set(errors.New("broken"), false)
		time.Sleep(time.Minute)
		if r := get(t.Context(), time.Second); r.Value != 1 || r.Err == nil || r.At.IsZero() {
			t.Errorf("%+v, want the last one and the error", r)
		}
		s.set(nil, false)
		if r := get(t.Context(), time.Second); r.Value != 3 || r.Err != nil {
			t.Errorf("%+v, want a third reading", r)
		}
	})
}

func TestHanging(t *testing.T) {
	bubble(t, func(t *testing.T, s *source, get func(context.Context, time.Duration) Reading[int]) {
		s.set(nil, true)
		slow := errors.New("slow")
		for range 3 {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, slow)
			if r := get(ctx, time.Second); !r.At.IsZero() || !errors.Is(r.Err, slow) {
				t.Errorf("%+v, want nothing after a second", r)
			}
			cancel()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.n != 1 {
			t.Errorf("%d readings under way, want 1", s.n)
		}
	})
}

// What takes long or fails isn't read again at once, whatever age its callers ask for.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, c := NewGroup(t.Context()), &source{}, &Cell[int]{Rest: time.Minute}
		reads := func(want int) {
			t.Helper()
			c.Get(t.Context(), g, time.Millisecond, 2*time.Minute, s.read)
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.n != want {
				t.Errorf("%d readings, want %d", s.n, want)
			}
		}
		reads(1)
		time.Sleep(9 * time.Second)
		reads(1)
		time.Sleep(2 * time.Second)
		s.set(errors.New("broken"), false)
		reads(2)
		reads(2)
		time.Sleep(11 * time.Second)
		s.set(nil, true)
		reads(3)
		time.Sleep(59 * time.Second)
		reads(3)
		time.Sleep(2 * time.Second)
		s.set(nil, false)
		reads(4)
		g.Wait(time.Hour)
	})
}

// Who is in a hurry has what takes long read again, once it has rested as long as it took.
func TestHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, c := NewGroup(t.Context()), &source{}, &Cell[int]{Rest: time.Minute}
		for _, step := range []struct {
			pause time.Duration
			hurry bool
			want  int
		}{{0, true, 1}, {500 * time.Millisecond, true, 1}, {time.Second, false, 1}, {0, true, 2}, {0, true, 2}} {
			time.Sleep(step.pause)
			if step.hurry {
				c.Hurry()
			}
			if r := c.Get(t.Context(), g, time.Millisecond, time.Minute, s.read); r.Value != step.want {
				t.Errorf("%+v: reading %d", step, r.Value)
			}
		}
		g.Wait(time.Hour)
	})
}
