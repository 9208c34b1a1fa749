package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/cri/handler"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/probe/internal/check"
)

// checker runs one probe once.
type checker interface {
	Run(ctx context.Context, t check.Target, spec *corev1.Probe) (check.Result, error)
}

// Service runs the probes. Its fields below the channels belong to the goroutine of Run.
type Service struct {
	checker checker
	env     daemon.Env

	loop    *loop.Loop
	results chan result
	runs    chan run

	tracker *tracker
	metrics *metrics
	writer  *bus.Writer[topic.Probe]
	// unread are the topics whose retained values have not all come yet.
	unread map[string]bool
	// away are the exec probes that the runtime doesn't answer.
	away    map[*probe]error
	workers workers
}

// run is one of a probe.
type run struct {
	probe  *probe
	target check.Target
	spec   *corev1.Probe
}

// result is the end of a run.
type result struct {
	probe  *probe
	result check.Result
	err    error
}

// Run is the probe daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	client, err := cri.Dial(env.Config.RuntimeEndpoint, cri.Options{
		Timeout: env.Config.Kubelet.RuntimeRequestTimeout.Duration, Metrics: env.Metrics,
	})
	if err != nil {
		return err
	}
	checker := check.New(client)
	err = New(checker, env).Run(ctx)
	checker.Wait()
	return errors.Join(err, client.Close())
}

// New makes the service. It starts nothing.
func New(checker checker, env daemon.Env) *Service {
	t := newTracker(runtime.NumCPU())
	return &Service{
		checker: checker, env: env, tracker: t, loop: loop.New(env.Bus),
		results: make(chan result), runs: make(chan run, t.exec.ease), unread: map[string]bool{}, away: map[*probe]error{},
	}
}

// Run probes until ctx ends. An error says why it can't begin.
func (s *Service) Run(ctx context.Context) error {
	var err error
	if s.metrics, err = newMetrics(s.env.Metrics, s.env.Pages); err != nil {
		return err
	}
	s.writer = topic.ProbeResult.Writer(s.env.Bus)
	ctx, cancel := context.WithCancelCause(ctx)
	defer s.loop.Wait()
	defer cancel(errors.New("probe stops"))
	if err := s.subscribe(ctx); err != nil {
		return err
	}
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		begin, wake := s.tracker.next(now)
		for _, p := range begin {
			s.begin(ctx, p)
		}
		s.dismiss(ctx, s.workers.shrink(now))
		if at := s.workers.review; !at.IsZero() {
			wake = earlier(wake, at)
		}
		timer.Stop()
		if !wake.IsZero() {
			timer.Reset(time.Until(wake))
		}
		select {
		case <-ctx.Done():
		case <-timer.C:
		case change := <-s.loop.Changes():
			change()
		case r := <-s.results:
			s.onResult(ctx, r)
		}
		s.act()
	}
	return nil
}

// begin runs the probe outside the loop; the end comes on s.results.
func (s *Service) begin(ctx context.Context, p *probe) {
	s.metrics.began(p)
	target := check.Target{Target: handler.Target{Container: p.containerSpec, PodIP: p.podIP}, ContainerID: p.id}
	r := run{p, target, p.spec}
	if s.workers.take() {
		s.hand(ctx, r)
		return
	}
	s.loop.Go(func() { s.work(ctx, r) })
}

func (s *Service) onResult(ctx context.Context, r result) {
	now := time.Now()
	if !s.workers.put(now, cap(s.runs)) {
		s.dismiss(ctx, 1)
	}
	took := now.Sub(r.probe.began)
	if s.tracker.done(now, r.probe, r.result, r.err) {
		s.metrics.ended(r.probe, r.result.Success, took)
	}
	switch {
	case r.err != nil:
		s.logOf(r.probe).Debug("can't run a probe", "error", r.err)
	case !r.result.Success:
		s.logOf(r.probe).Debug("probe failed", "output", r.result.Output)
	}
	var away check.RuntimeError
	if r.err != nil && errors.As(r.err, &away) {
		s.away[r.probe] = away
	} else {
		delete(s.away, r.probe)
	}
	s.reportRuntime()
}

func (s *Service) logOf(p *probe) *slog.Logger {
	return s.env.Log.With("pod", p.ref.Name, "namespace", p.ref.Namespace, "container", p.container, "kind", p.kind)
}

// reportRuntime keeps the daemon's health: exec probes decide nothing while the runtime doesn't answer.
func (s *Service) reportRuntime() {
	maps.DeleteFunc(s.away, func(p *probe, _ error) bool { return !s.tracker.has(p) })
	for _, err := range s.away {
		// The error names the container where the runtime is there: with more than one it would change all the time.
		message := fmt.Sprintf("%d exec probes can't run, their last verdicts stay valid", len(s.away))
		if len(s.away) == 1 {
			message = fmt.Sprintf("can't run an exec probe, its last verdict stays valid: %v", err)
		}
		s.env.Health.Set(topic.Degraded, message)
		return
	}
	s.env.Health.Set(topic.Healthy, "")
}

// act does what the tracker wants done.
func (s *Service) act() {
	out := s.tracker.take()
	for _, change := range out.verdicts {
		var err error
		if change.verdict != nil {
			s.env.Log.Debug("verdict", "key", change.key, "id", change.verdict.ContainerID, "success", change.verdict.Success)
			err = s.writer.Set(change.key, *change.verdict)
		} else {
			err = s.writer.Delete(change.key)
		}
		if err != nil {
			s.env.Log.Error("can't publish a probe's verdict, no daemon acts on it", "key", change.key, "error", err)
		}
	}
	for _, e := range out.events {
		s.env.Events.Record(e)
	}
	for _, ref := range out.gone {
		s.metrics.gone(ref)
	}
	if len(s.away) > 0 {
		// The probe that the runtime didn't answer may have stopped.
		s.reportRuntime()
	}
}
