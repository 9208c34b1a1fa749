package worker

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/pause"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// retryFirst and retryMax are the pauses after failures of an action.
const (
	retryFirst = 500 * time.Millisecond
	retryMax   = 10 * time.Second
)

var (
	errShutdown = errors.New("podsync stops")
	errStopping = errors.New("the pod must stop")
	errShorter  = errors.New("the grace period was shortened")
	errChanged  = errors.New("the pod asks for another image now")
)

// actions are those under way, and those that failed and must be tried again.
type actions struct {
	inflight map[string]*inflightAction // by the action's key
	failures map[string]plan.Failure    // by failureKey
	tries    map[string]int             // failures in a row, by the action's key
}

func newActions() *actions {
	return &actions{inflight: map[string]*inflightAction{}, failures: map[string]plan.Failure{}, tries: map[string]int{}}
}

// inflightAction is an action under way.
type inflightAction struct {
	action plan.Action
	pod    *corev1.Pod // as it was when the action began
	cancel context.CancelCauseFunc
}

type result struct {
	*inflightAction
	Outcome
}

// free reports whether the action isn't under way, and isn't waiting for its next try.
func (a *actions) free(action plan.Action) bool {
	return a.inflight[action.Key()] == nil && !time.Now().Before(a.failures[failureKey(action)].RetryAt)
}

// cancel breaks off the actions under way that are chosen.
func (a *actions) cancel(cause error, chosen func(*inflightAction) bool) {
	for _, f := range a.inflight {
		if chosen(f) {
			f.cancel(cause)
		}
	}
}

// starting reports whether something is being brought up.
func (a *actions) starting() bool {
	for _, f := range a.inflight {
		if f.action.Starts() {
			return true
		}
	}
	return false
}

// succeeded forgets the failures of the action.
func (a *actions) succeeded(action plan.Action) {
	delete(a.tries, action.Key())
	name := failureKey(action)
	if action.Kind == plan.EnsureImage && a.failures[name].Of == plan.StartContainer {
		return // why the start failed stays told until it succeeds
	}
	delete(a.failures, name)
}

// failed keeps the failure of the action, and returns it with how many there were in a row.
func (a *actions) failed(action plan.Action, err error) (failure plan.Failure, tries int) {
	failure = plan.Failure{Reason: string(action.Kind), Message: err.Error()}
	var failed *Failed
	if errors.As(err, &failed) {
		failure = plan.Failure{Reason: failed.Reason, Message: failed.Message, RetryAt: failed.RetryAt}
	}
	a.tries[action.Key()]++
	tries = a.tries[action.Key()]
	if failure.RetryAt.IsZero() {
		failure.RetryAt = time.Now().Add(pause.After(tries, retryFirst, retryMax))
	}
	failure.Of = action.Kind
	a.failures[failureKey(action)] = failure
	return failure, tries
}

// nextRetry is when the next action must be tried again; zero if none is.
func (a *actions) nextRetry(now time.Time) time.Time {
	var next time.Time
	for _, failure := range a.failures {
		if failure.RetryAt.After(now) {
			next = earlier(next, failure.RetryAt)
		}
	}
	return next
}

// brokenOff reports whether an action has failed only because it was cancelled.
func brokenOff(err error) bool {
	for _, cause := range []error{context.Canceled, errStopping, errShorter, errChanged, errShutdown} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// failureKey is the key of an action's failure. The failure of a start has its container's name, so that the plan sees
// it; any other has the action's own key.
func failureKey(a plan.Action) string {
	if a.Starts() {
		return a.Container
	}
	return a.Key()
}

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
