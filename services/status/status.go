package status

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
)

const (
	// writers bounds the requests that are under way at once.
	writers = 8
	// retryFirst and retryMax bound the delay after a failed request; the delay doubles in between.
	retryFirst = 100 * time.Millisecond
	retryMax   = 10 * time.Second
	// suspicious is how often a pod isn't found, or is another one, before the log has it: it may be gone before podsync's
	// watch tells.
	suspicious = 4
	// inARow is how many writes of one pod may follow others at once though they say the same. After more of them somebody
	// at the API server undoes them, such as a webhook or a controller; the next ones are put off like failures. quiet
	// is how long nothing must have been undone for the next write to be at once again.
	inARow = 4
	quiet  = 2 * retryMax
	// resendEvery is how often patches that have changed nothing are sent again: the API server may have been told to keep
	// more.
	resendEvery = 5 * time.Minute
	// recallPatience is how long the retained merged statuses are waited for when everything else was read. A bus of an
	// earlier release never hands them over.
	recallPatience = 5 * time.Second
)

// pods is what the service needs of the API server.
type pods interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name, uid string) error
}

// Service merges the pods' statuses and writes them. Its Run is the goroutine that owns the state.
type Service struct {
	env daemon.Env
	// api is nil in standalone mode: the statuses are merged and published nevertheless.
	api     pods
	state   *state
	tries   map[string]*try
	active  int
	metrics metrics
	outage  string
	loop    *loop.Loop
	// unread are the topics whose retained values have not all come yet. impatient ends the wait for what this daemon
	// itself has said before, once that is all that is missing.
	unread    map[string]bool
	impatient <-chan time.Time
}

// try is how often a key's action has failed, and from when it may be tried again.
type try struct {
	busy        bool
	failures    int
	unreachable bool
	// failsIn is the namespace of an object that the API server fails on; empty where it doesn't answer at all.
	failsIn string
	after   time.Time
	// rewrites is how often in a row the pod was written again since others had undone it, the last time at rewrote.
	rewrites int
	rewrote  time.Time
}

// New makes the service; without an API server api is nil. It starts nothing.
func New(env daemon.Env, api pods) *Service {
	return &Service{
		env: env, api: api, state: newState(), tries: map[string]*try{}, unread: map[string]bool{},
		metrics: newMetrics(env.Metrics), loop: loop.New(env.Bus),
	}
}

// Run is the status daemon's work.
func Run(ctx context.Context, env daemon.Env) error {
	if env.Config.Standalone() {
		return New(env, nil).Run(ctx)
	}
	client, events, err := clients(ctx, env)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer client.Close()
	defer events.Close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wrote := &lastWrite{}
	recorder := newRecorder(env, events, wrote)
	done := make(chan struct{})
	go func() {
		defer close(done)
		recorder.run(ctx)
	}()
	err = New(env, podClient{client, wrote}).Run(ctx)
	cancel()
	<-done
	return err
}

// Run works until ctx ends and waits for the requests under way.
func (s *Service) Run(ctx context.Context) error {
	defer s.loop.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.follow(ctx); err != nil {
		return err
	}
	s.serveUnwritten(ctx)
	said := topic.MergedStatus.Writer(s.env.Bus)
	s.env.Health.Set(topic.Healthy, s.mode())
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	timer := time.NewTimer(0)
	defer timer.Stop()
	resend := time.NewTicker(resendEvery)
	defer resend.Stop()
	for {
		if s.state.live {
			s.say(said)
			s.start(ctx)
			timer.Reset(s.nextRetry(time.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case change := <-s.loop.Changes():
			change()
		case <-s.impatient:
			s.env.Log.Warn("can't read the pod statuses that were published before, publishing them again",
				"topic", topic.MergedStatus.Name())
			s.synced(topic.MergedStatus.Name())
		case <-resend.C:
			s.state.forgetRefused()
		case <-timer.C:
		}
	}
}

// mode is what the health says besides being healthy.
func (s *Service) mode() string {
	if s.api == nil {
		return "standalone: there is no API server to report to"
	}
	return ""
}

// say publishes what has changed. It waits for nothing: an API server that is slow or away holds up no reader on the
// node.
func (s *Service) say(to publisher) {
	for _, err := range (merger{s.state}).say(to, time.Now()) {
		s.env.Log.Error("can't publish a merged pod status", "error", err)
	}
}

// start begins as many requests as there are writers.
func (s *Service) start(ctx context.Context) {
	if s.api == nil {
		s.state.dirty.clear() // nothing is ever asked
		return
	}
	now := time.Now()
	idle := func(key string) bool {
		t := s.tries[key]
		return t == nil || !t.busy && !now.Before(t.after)
	}
	for s.active < writers {
		key := s.state.dirty.take(idle)
		if key == "" {
			return
		}
		a, err := s.state.decide(key, now)
		if err != nil {
			s.env.Log.Error("can't write a pod status", "uid", key, "error", err)
			continue
		}
		if p := s.state.pods[key]; p != nil && a.upToDate {
			p.changed = time.Time{}
		}
		if a.verb == doNothing {
			s.rest(key, now)
			continue
		}
		if s.tries[key] == nil {
			s.tries[key] = &try{}
		}
		s.tries[key].busy = true
		s.active++
		s.loop.Go(func() {
			answered := s.do(ctx, a)
			s.loop.Do(ctx, func() { s.settle(answered) })
		})
	}
}

func (s *Service) do(ctx context.Context, a action) answer {
	answered := answer{action: a}
	switch a.verb {
	case doGet:
		answered.pod, answered.err = s.api.GetPod(ctx, a.Namespace, a.Name)
	case doPatch:
		answered.pod, answered.err = s.api.PatchPodStatus(ctx, a.Namespace, a.Name, a.patch)
	case doCreate:
		answered.pod, answered.err = s.api.CreatePod(ctx, a.pod)
	case doDelete:
		answered.err = s.api.DeletePod(ctx, a.Namespace, a.Name, a.UID)
	}
	if answered.err != nil {
		answered.err = fmt.Errorf("%s %s/%s: %w", a.verb, a.Namespace, a.Name, answered.err)
	}
	return answered
}

func (s *Service) settle(a answer) {
	key := a.action.key
	s.active--
	t := s.tries[key]
	t.busy = false
	if p := s.state.pods[key]; p != nil && a.err == nil && a.action.verb == doPatch && !p.changed.IsZero() {
		s.metrics.sync.Observe(time.Since(p.changed).Seconds())
		p.changed = time.Time{}
	}
	if err := s.state.settle(a); err != nil {
		s.failed(a.action, t, err)
		return
	}
	if a.action.verb != doGet {
		// A reading says nothing of the write that was refused before it.
		t.failures = 0
	}
	s.reached(t)
	if a.action.verb == doPatch {
		s.wrote(a.action, t)
	}
}

// wrote puts off a pod that is written again and again.
func (s *Service) wrote(a action, t *try) {
	now := time.Now()
	if now.Sub(t.rewrote) > quiet {
		t.rewrites = 0
	}
	if p := s.state.pods[a.key]; p != nil {
		if p.written == a.says {
			t.rewrites, t.rewrote = t.rewrites+1, now
		}
		p.written = a.says
	}
	if t.rewrites <= inARow {
		return
	}
	t.after = now.Add(delay(t.rewrites - inARow))
	if t.rewrites == 2*inARow {
		s.env.Log.Warn("something changes the status of a pod at the API server after each write; find out what "+
			"does it (webhooks, other writers)", "uid", a.key)
	}
}

// rest forgets the failures of a key for which there is nothing to do. Who undoes a write may do so later than now.
func (s *Service) rest(key string, now time.Time) {
	t := s.tries[key]
	if t == nil || s.state.pods[key] == nil || now.Sub(t.rewrote) > quiet {
		delete(s.tries, key)
		return
	}
	*t = try{rewrites: t.rewrites, rewrote: t.rewrote}
}

// delay is how long to wait after that many requests without success.
func delay(n int) time.Duration { return pause.After(n, retryFirst, retryMax) }

// failed puts the action's key off.
func (s *Service) failed(a action, t *try, err error) {
	t.unreachable, t.failsIn = unreachable(err), ""
	if t.unreachable && !absent(err) {
		t.failsIn = a.Namespace
	}
	t.failures++
	t.after = time.Now().Add(delay(t.failures))
	s.state.touch(a.key)
	switch {
	case t.unreachable && s.outage != "":
		s.refused(err)
	case t.unreachable && (t.failsIn == "" || s.failsWidely()):
		s.outage = err.Error()
		s.env.Log.Warn("can't reach the API server, or it fails; the latest status of each pod is written once it answers",
			"error", err)
		s.env.Health.Set(topic.Degraded, "can't reach the API server, or it fails: "+err.Error())
	case (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) && t.failures < suspicious:
	case worthALine(t.failures):
		s.env.Log.Warn("the API server refused a request for a pod, or failed on it, retrying", "uid", a.key,
			"error", err, "failures", t.failures)
	}
}

// refused makes known that nothing listens any more in an outage that began otherwise, such as with an answer that the
// API server broke off as it ended: that is what helps to find it.
func (s *Service) refused(err error) {
	if utilnet.IsConnectionRefused(err) && !strings.Contains(s.outage, syscall.ECONNREFUSED.Error()) {
		s.outage = err.Error()
		s.env.Health.Set(topic.Degraded, "can't reach the API server, or it fails: "+s.outage)
	}
}

// worthALine is true for 1, 4, 16 failures and so on.
func worthALine(failures int) bool {
	return bits.OnesCount(uint(failures)) == 1 && bits.TrailingZeros(uint(failures))%2 == 0
}

// failsWidely reports whether the API server fails on objects of more than one namespace: its storage does rather than
// a webhook.
func (s *Service) failsWidely() bool {
	namespaces := map[string]bool{}
	for _, t := range s.tries {
		if t.failsIn != "" {
			namespaces[t.failsIn] = true
		}
	}
	return len(namespaces) > 1
}

// reached ends the waiting of all requests that failed with the server. While it fails widely only the success of one
// that had failed says that this is over.
func (s *Service) reached(t *try) {
	recovered := t.failsIn != ""
	t.unreachable, t.failsIn = false, ""
	if s.outage == "" || !recovered && s.failsWidely() {
		return
	}
	s.outage = ""
	s.env.Log.Info("the API server answers again")
	s.env.Health.Set(topic.Healthy, "")
	for _, t := range s.tries {
		if t.unreachable {
			t.after, t.unreachable, t.failsIn = time.Time{}, false, ""
		}
	}
}

// nextRetry is how long until the first put-off key may be tried again.
func (s *Service) nextRetry(now time.Time) time.Duration {
	next := time.Hour
	for _, t := range s.tries {
		if !t.busy && t.after.After(now) {
			next = min(next, t.after.Sub(now))
		}
	}
	return next
}
