package pleg

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/cri"
)

const (
	// Nothing says that a stream is open: without an event it counts as open after streamGrace.
	streamGrace = time.Second
	// streamRetry is the pause after a broken stream, streamNoneRetry after a runtime said that it has none.
	streamRetry, streamNoneRetry = 200 * time.Millisecond, time.Minute
)

// streamState is what the loop learns about the event stream.
type streamState struct {
	open bool
	err  error // why it isn't
}

// follow keeps the event stream open until ctx ends. Events go to s.events; if that is full, s.missed is signalled.
func (s *Service) follow(ctx context.Context) {
	for ctx.Err() == nil {
		begin := time.Now()
		err := s.stream(ctx)
		if ctx.Err() == nil {
			s.metrics.streamErrors.Inc()
		}
		s.tell(ctx, streamState{err: err})
		again := streamRetry
		endedAtOnce := errors.Is(err, cri.ErrStreamEnded) && time.Since(begin) < streamGrace
		if cri.IsUnimplemented(err) || endedAtOnce {
			again = streamNoneRetry
		}
		pause.For(ctx, again)
	}
}

// stream opens the stream once and follows it to its end; the error is the reason for the end.
func (s *Service) stream(ctx context.Context) error {
	first := make(chan struct{}, 1)
	streamCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.loop.Go(func() {
		timer := time.NewTimer(streamGrace)
		defer timer.Stop()
		select {
		case <-streamCtx.Done():
			return
		case <-first:
		case <-timer.C:
		}
		s.tell(streamCtx, streamState{open: true})
	})
	return s.runtime.GetContainerEvents(streamCtx, func(e *runtimeapi.ContainerEventResponse) {
		signal(first)
		s.metrics.eventLatency.Observe(time.Since(time.Unix(0, e.GetCreatedAt())).Seconds())
		select {
		case s.events <- newEvent(e):
		default:
			signal(s.missed)
		}
	})
}

// tell has the loop know the stream's state, unless ctx has ended when the loop comes to it: then it is out of date.
func (s *Service) tell(ctx context.Context, state streamState) {
	s.loop.Do(ctx, func() {
		if ctx.Err() == nil {
			s.onStream(state)
		}
	})
}

// signal wakes the goroutine that waits on c, which has room for one signal.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
