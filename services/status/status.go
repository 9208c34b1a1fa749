package status

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

const (
	// writers bounds the requests that are under way at once.
	writers = 8
	// retryFirst and retryMax bound the delay after a failed request; the delay doubles in between.
	retryFirst = 100 * time.Millisecond
	retryMax   = 10 * time.Second
	// suspicious is how often a pod isn't found, or is another one, before the log has it: it may be gone before podsync's watch
	// tells.
	suspicious = 4
	// inARow is how many writes of one pod may follow each other at once. A pod that is still to be written after more of them has a
	// status that the API server, or a webhook there, doesn't keep; it is put off like a failure.
	inARow = 4
	// resendEvery is how often patches that have changed nothing are sent again: the API server may have been told to keep more.
	resendEvery = 5 * time.Minute
)

// pods is what the service needs of the API server.
type pods interface {
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
	PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	DeletePod(ctx context.Context, namespace, name, uid string) error
}

// Service writes pods. Its Run is the goroutine that owns the world.
type Service struct {
	env     daemon.Env
	api     pods
	world   *world
	tries   map[string]*try
	answers chan answer
	active  int
	metrics metrics
	outage  string
	wg      sync.WaitGroup
}

// try is how often a key's action has failed, and from when it may be tried again.
type try struct {
	busy        bool
	failures    int
	writes      int // in a row, each of which left something to write
	unreachable bool
	// failsIn is the namespace of an object that the API server fails on; empty where it doesn't answer at all.
	failsIn string
	after   time.Time
}

// New makes the service. It starts nothing.
func New(env daemon.Env, api pods) *Service {
	return &Service{
		env: env, api: api, world: newWorld(), tries: map[string]*try{},
		answers: make(chan answer), metrics: newMetrics(env.Metrics),
	}
}

// Run is the status daemon's work. Without an API server there is none.
func Run(ctx context.Context, env daemon.Env) error {
	if env.Config.Standalone() {
		env.Health.Set(topic.Healthy, "standalone: there is no API server to report to")
		<-ctx.Done()
		return nil
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
	defer s.wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, err := s.follow(ctx)
	if err != nil {
		return err
	}
	s.env.Health.Set(topic.Healthy, "")
	timer := time.NewTimer(0)
	defer timer.Stop()
	resend := time.NewTicker(resendEvery)
	defer resend.Stop()
	synced := map[string]bool{}
	for {
		if s.world.live {
			s.start(ctx)
			timer.Reset(s.nextRetry(time.Now()))
		}
		select {
		case <-ctx.Done():
			s.finish()
			return nil
		case change := <-changes:
			if change.apply != nil {
				change.apply(s.world)
				continue
			}
			synced[change.topic] = true
			s.world.live = len(synced) == watches
		case a := <-s.answers:
			s.settle(a)
		case <-resend.C:
			s.world.forgetRefused()
		case <-timer.C:
		}
	}
}

// start begins as many requests as there are writers.
func (s *Service) start(ctx context.Context) {
	now := time.Now()
	idle := func(key string) bool {
		t := s.tries[key]
		return t == nil || !t.busy && !now.Before(t.after)
	}
	for s.active < writers {
		key := s.world.take(idle)
		if key == "" {
			return
		}
		a, err := s.world.decide(key, now)
		if err != nil {
			s.env.Log.Error("pod status can't be written", "uid", key, "error", err)
			continue
		}
		if a.verb == doNothing {
			delete(s.tries, key)
			continue
		}
		if s.tries[key] == nil {
			s.tries[key] = &try{}
		}
		s.tries[key].busy = true
		s.active++
		s.wg.Go(func() { s.answers <- s.do(ctx, a) })
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
	if p := s.world.pods[key]; p != nil && a.err == nil && a.action.verb == doPatch && !p.changed.IsZero() {
		s.metrics.sync.Observe(time.Since(p.changed).Seconds())
		p.changed = time.Time{}
	}
	if err := s.world.settle(a); err != nil {
		s.failed(a.action, t, err)
		return
	}
	t.failures = 0
	s.reached(t)
	if a.action.verb == doPatch {
		s.wrote(key, t)
	}
}

// wrote puts off a key that is written again and again.
func (s *Service) wrote(key string, t *try) {
	if t.writes++; t.writes <= inARow {
		return
	}
	t.after = time.Now().Add(delay(t.writes - inARow))
	if t.writes == 2*inARow {
		s.env.Log.Warn("the API server doesn't keep the status of a pod as it is written; see what changes it there (webhooks, other writers)", "uid", key)
	}
}

// delay is how long to wait after that many vain requests.
func delay(n int) time.Duration { return min(retryFirst<<min(n-1, 10), retryMax) }

// failed puts the action's key off.
func (s *Service) failed(a action, t *try, err error) {
	t.unreachable, t.failsIn = unreachable(err), ""
	if t.unreachable && !absent(err) {
		t.failsIn = a.Namespace
	}
	t.failures++
	t.after = time.Now().Add(delay(t.failures))
	s.world.touch(a.key)
	switch {
	case t.unreachable && s.outage != "":
	case t.unreachable && (t.failsIn == "" || s.failsWidely()):
		s.outage = err.Error()
		s.env.Log.Warn("the API server can't be reached, or fails; the latest status of each pod will be written when it can", "error", err)
		s.env.Health.Set(topic.Degraded, "the API server can't be reached, or fails: "+err.Error())
	case (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) && t.failures < suspicious:
	case worthALine(t.failures):
		s.env.Log.Warn("the API server refused or failed on a request for a pod; it is tried again", "uid", a.key, "error", err, "failures", t.failures)
	}
}

// worthALine is true for 1, 4, 16 failures and so on.
func worthALine(failures int) bool {
	return bits.OnesCount(uint(failures)) == 1 && bits.TrailingZeros(uint(failures))%2 == 0
}

// failsWidely tells whether the API server fails on objects of more than one namespace: its storage does rather than a webhook.
func (s *Service) failsWidely() bool {
	namespaces := map[string]bool{}
	for _, t := range s.tries {
		if t.failsIn != "" {
			namespaces[t.failsIn] = true
		}
	}
	return len(namespaces) > 1
}

// reached ends the waiting of all requests that failed with the server. While it fails widely only the success of one that had failed
// says that this is over.
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

// finish takes the answers of the requests under way, which end with the context.
func (s *Service) finish() {
	for ; s.active > 0; s.active-- {
		<-s.answers
	}
}
