package shutdown

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
)

// The kubelet's words.
const (
	podMessage      = "Pod was terminated in response to imminent node shutdown."
	eventReason     = "Shutdown"
	eventDetected   = "Shutdown manager detected shutdown event"
	eventCancelled  = "Shutdown manager detected shutdown cancellation"
	bootIDFile      = "/proc/sys/kernel/random/boot_id"
	restoreDeadline = 5 * time.Second
)

// Lock keeps the machine from going down; package logind has the real one.
type Lock interface {
	// Run holds the lock while it is wanted, until ctx ends. It calls announced for each announcement and each time that
	// it has connected; shuttingDown reports whether the machine shuts down. It calls problem with the error that keeps
	// it from its work, and with nil when there is none any more.
	Run(ctx context.Context, announced func(shuttingDown bool), problem func(error))
	// Want sets whether the lock is wanted.
	Want(held bool)
	// Limit is how long the machine waits for the lock at most; zero while that isn't known.
	Limit() time.Duration
}

// Service is what ends the pods. Its fields below the loop belong to the goroutine of Run.
type Service struct {
	env     daemon.Env
	groups  []topic.ShutdownGroup
	lock    Lock
	bootID  string
	metrics *metrics
	loop    *loop.Loop

	state topic.Shutdown
	// recalled is true once it is known what an earlier process has published. Nothing is published before.
	recalled bool
	// calm is true if the last that logind has said is that the machine doesn't shut down.
	calm bool
	say  *bus.Writer[topic.Shutdown]
	// under is the shutdown under way; nil while there is none, or it is done.
	under *underway
}

// New returns the service; lock is nil if no groups are configured. It starts nothing.
func New(env daemon.Env, groups []topic.ShutdownGroup, lock Lock) (*Service, error) {
	boot, err := os.ReadFile(bootIDFile)
	if err != nil {
		env.Log.Warn("can't read the ID of this boot: a shutdown of an earlier boot will be taken for one of this boot",
			"error", err)
	}
	s := &Service{
		env: env, groups: groups, lock: lock, bootID: strings.TrimSpace(string(boot)), loop: loop.New(env.Bus),
	}
	if s.metrics, err = newMetrics(env.Metrics); err != nil {
		return nil, err
	}
	return s, nil
}

// Run works until ctx ends. It calls problem with the error that keeps it from its work, and with nil when there is
// none any more.
func (s *Service) Run(ctx context.Context, problem func(error)) {
	ctx, cancel := context.WithCancel(ctx)
	defer s.loop.Wait()
	defer cancel()
	s.say = topic.NodeShutdown.Writer(s.env.Bus)
	s.metrics.show(s.load())
	s.loop.Go(func() { s.serve(ctx) })
	s.loop.Go(func() { s.recall(ctx) })
	if s.lock != nil {
		s.lock.Want(true)
		s.loop.Go(func() {
			s.lock.Run(ctx, func(shuttingDown bool) {
				s.loop.Do(ctx, func() { s.announced(ctx, shuttingDown) })
			}, problem)
		})
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if again := s.step(ctx, time.Now()); !again.IsZero() {
			timer.Reset(time.Until(again))
		}
		select {
		case <-ctx.Done():
			return
		case change := <-s.loop.Changes():
			change()
		case <-timer.C:
		}
	}
}

// Inbox is where the loop of Run receives from, for daemon.Pulse.
func (s *Service) Inbox() chan<- func() { return s.loop.Inbox() }

// recall reads what an earlier process has published. It tries until the bus answers.
func (s *Service) recall(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		limited, cancel := context.WithTimeout(ctx, restoreDeadline)
		values, err := topic.NodeShutdown.Read(limited, s.env.Bus)
		cancel()
		if err == nil {
			s.loop.Do(ctx, func() { s.restore(ctx, values[""]) })
			return
		}
		pause.For(ctx, pause.After(failures, 100*time.Millisecond, restoreDeadline))
	}
}

// restore continues the shutdown that an earlier process has begun. One that was announced meanwhile is the same one.
func (s *Service) restore(ctx context.Context, before topic.Shutdown) {
	s.recalled = true
	other := before.Active && before.BootID != s.bootID
	if other {
		s.env.Log.Info("the bus has a shutdown of another boot; it is over", "boot", before.BootID, "started", before.Started)
		s.publish() // what it has says otherwise
	}
	if other || !before.Active {
		if s.state.Active {
			s.tell()
		}
		return
	}
	s.forget()
	s.state = before
	s.env.Log.Info("an earlier process has begun a shutdown of the node; it goes on", "trigger", before.Trigger,
		"started", before.Started, "group", before.Group, "done", !before.Done.IsZero())
	switch {
	case before.Trigger == topic.ByLogind && s.calm:
		s.cancel()
	case before.Done.IsZero():
		s.follow(ctx)
	default:
		s.release()
	}
}

// forget drops what was begun for a shutdown.
func (s *Service) forget() {
	if s.under != nil {
		s.under.end()
		s.under = nil
	}
}

// announced handles an announcement of logind. Only a command ends a shutdown that a command has begun.
func (s *Service) announced(ctx context.Context, shuttingDown bool) {
	s.calm = !shuttingDown
	switch {
	case shuttingDown:
		s.start(ctx, topic.ByLogind, s.groups)
	case s.state.Active && s.state.Trigger == topic.ByLogind:
		s.cancel()
	}
}

// start begins a shutdown, unless one is under way.
func (s *Service) start(ctx context.Context, trigger topic.ShutdownTrigger, groups []topic.ShutdownGroup) {
	if s.state.Active {
		if !s.state.Done.IsZero() {
			s.release() // nothing is left to wait for
		}
		return
	}
	now := time.Now()
	s.state = topic.Shutdown{
		Active: true, Trigger: trigger, BootID: s.bootID, Started: now, Groups: groups, GroupStarted: now,
	}
	s.env.Log.Warn("the node shuts down: its pods are ended", "trigger", trigger, "at_most", Total(groups))
	if s.recalled { // else it may be that of an earlier process
		s.tell()
	}
	s.follow(ctx)
}

// tell tells of a shutdown that this process has begun.
func (s *Service) tell() {
	s.event(eventDetected)
	s.publish()
	s.store()
}

// cancel ends a shutdown. Pods that were asked to end still do.
func (s *Service) cancel() {
	s.env.Log.Warn("the shutdown of the node was cancelled: pods are admitted again", "trigger", s.state.Trigger,
		"started", s.state.Started)
	s.event(eventCancelled)
	s.forget()
	s.state.Active = false
	s.publish()
	if s.lock != nil {
		s.lock.Want(true)
	}
}

// step takes the next step, and returns when to come again at the latest; zero for never.
func (s *Service) step(ctx context.Context, now time.Time) time.Time {
	u := s.under
	if u == nil || u.flushing {
		return time.Time{}
	}
	at := Progress{
		Group: s.state.Group, Since: s.state.GroupStarted, Until: s.state.Started.Add(Total(s.state.Groups)),
	}
	next := advance(s.state.Groups, at, u.list(), u.known, now)
	for _, e := range next.Ends {
		u.ask(ctx, s, e, now)
	}
	if next.Group != at.Group {
		s.env.Log.Info("the next group of pods ends", "group", next.Group, "groups", len(s.state.Groups))
		s.state.Group, s.state.GroupStarted = next.Group, next.Since
		if next.Group == len(s.state.Groups) {
			s.state.Ended = now
			s.store()
		}
		s.publish()
	}
	if next.Group == len(s.state.Groups) {
		u.flushing = true
		s.flush(ctx, u)
	}
	return next.Again
}

// done lets the machine shut down. left is what has failed, or nil.
func (s *Service) done(left error) {
	s.state.Done = time.Now()
	log := s.env.Log.Info
	if left != nil {
		s.state.Message, log = left.Error(), s.env.Log.Warn
	}
	log("all pods have ended: the machine may shut down", "took", s.state.Done.Sub(s.state.Started),
		"left", s.state.Message)
	s.forget()
	s.publish()
	s.release()
}

func (s *Service) release() {
	if s.lock != nil {
		s.lock.Want(false)
	}
}

func (s *Service) publish() {
	if !s.recalled {
		return // it would replace what an earlier process has published
	}
	if err := s.say.Set("", s.state); err != nil {
		s.env.Log.Error("can't publish the node's shutdown: the other daemons and kubelot shutdown don't see it",
			"error", err)
	}
}

func (s *Service) event(message string) {
	n := s.env.Config.NodeName
	s.env.Events.Record(topic.Event{
		Kind: "Node", Ref: topic.Ref{Name: n, UID: n}, Type: corev1.EventTypeNormal, Reason: eventReason, Message: message,
		At: time.Now(),
	})
}

// stateFile is where the kubelet keeps the times of the last shutdown.
func (s *Service) stateFile() string {
	return filepath.Join(s.env.Config.RootDir, "graceful_node_shutdown_state")
}

// errNotConfigured is the answer to a start without groups.
var errNotConfigured = bus.WithKind(bus.ErrInvalid, errors.New("no time is configured for a shutdown of the node: set "+
	"shutdownGracePeriod or shutdownGracePeriodByPodPriority in the KubeletConfiguration, or name one (--grace-period)"))

// serve answers shutdown.request until ctx ends.
func (s *Service) serve(ctx context.Context) {
	type answer struct {
		state topic.Shutdown
		err   error
	}
	err := topic.ShutdownRequested.Serve(ctx, s.env.Bus,
		func(asked context.Context, req topic.ShutdownRequest) (topic.Shutdown, error) {
			a, gone := loop.Ask(asked, s.loop, func() answer {
				err := s.requested(ctx, req)
				return answer{s.state, err}
			})
			if gone != nil {
				return a.state, bus.WithKind(bus.ErrUnavailable, gone)
			}
			return a.state, a.err
		})
	if err != nil && ctx.Err() == nil {
		s.env.Log.Error("shutdown.request can't be served: kubelot shutdown doesn't work", "error", err)
	}
}

func (s *Service) requested(ctx context.Context, req topic.ShutdownRequest) error {
	groups := s.groups
	if len(req.Groups) > 0 {
		groups = sorted(req.Groups)
	}
	switch req.Action {
	case topic.StartShutdown:
		for _, g := range groups {
			if g.GracePeriodSeconds < 0 {
				return bus.WithKind(bus.ErrInvalid, fmt.Errorf("the grace period of the pods with priority %d is %d s", g.Priority,
					g.GracePeriodSeconds))
			}
		}
		if len(groups) == 0 && !s.state.Active {
			return errNotConfigured
		}
		s.start(ctx, topic.ByCommand, groups)
	case topic.CancelShutdown:
		if !s.state.Active {
			return bus.WithKind(bus.ErrInvalid, errors.New("the node isn't shutting down"))
		}
		s.cancel()
	default:
		return bus.WithKind(bus.ErrInvalid, fmt.Errorf("action %q: want start or cancel", req.Action))
	}
	return nil
}
