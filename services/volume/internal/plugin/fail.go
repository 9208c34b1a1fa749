package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/pause"
)

// ErrNotMounted says that a volume of a pod that ends isn't there; it isn't set up any more.
var ErrNotMounted = errors.New("the volume was not set up before the pod began to terminate")

// ErrInUse is the kubelet's refusal of a volume that only one pod may have.
var ErrInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// ErrExhausted is of a volume that can't be attached because the node can have no more of its driver.
var ErrExhausted = errors.New("the node can have no more volumes of the driver")

// ErrTerminated is the cause with which the worker of a pod that has terminated is stopped.
var ErrTerminated = errors.New("the pod has terminated")

// Failure is an error in the kubelet's own words: tools and people look for them in Events.
type Failure struct {
	// Reason is the Event's, such as FailedMapVolume.
	Reason string
	// What is the message before the cause.
	What string
	Err  error
	// OnItsWay is of a volume that others are still at work for, such as the attach-detach controller: it becomes an Event
	// only after some minutes.
	OnItsWay bool
	// Attacher is the CSI driver that has to attach the volume, if that is what is waited for.
	Attacher string
	// Unattached is of a volume that isn't attached to the node yet, whether it is waited for or has failed.
	Unattached bool
	// Costly is of a try that should not be made often: the pauses grow up to the kubelet's longest.
	Costly bool
}

func (f *Failure) Error() string { return f.What + f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// FailedStep is the failure of a step, such as MountVolume.SetUp, of the volume of that name.
func FailedStep(reason, step, volume string, err error) *Failure {
	return &Failure{Reason: reason, What: fmt.Sprintf("%s failed for volume %q : ", step, volume), Err: err}
}

// Unprocessed is the failure of a pod's volume that can't be begun with.
func Unprocessed(volume string, err error) *Failure {
	return &Failure{
		Reason: "FailedMount", Err: err, What: fmt.Sprintf(
			"Unable to attach or mount volumes: unmounted volumes=[%[1]s], unattached volumes=[], failed to process "+
				"volumes=[%[1]s]: ", volume),
	}
}

const (
	// answerTimeout bounds the wait for the API server's answer. When the answer of a watched object comes later, the
	// volume is mounted at once nevertheless, for the object's appearance is a change.
	answerTimeout = 10 * time.Second
	// firstPause and lastPause are the pauses between requests that the API server refuses for a pod that it doesn't
	// know yet.
	firstPause = 15 * time.Millisecond
	lastPause  = 480 * time.Millisecond
)

// Ask asks the API server, at most for as long as its answer may take. It sits out refusals of a kind that passes by
// itself: the server's caches of its authorizer and admission may be behind the watch that told this node of the pod.
func Ask[T any](ctx context.Context, passing func(error) bool, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTimeout,
		fmt.Errorf("the API server has not answered for %s", answerTimeout))
	defer cancel()
	for delay := firstPause; ; delay *= 2 {
		answer, err := ask(ctx)
		if err == nil || !passing(err) || delay > lastPause {
			return answer, err
		}
		if pause.For(ctx, delay); ctx.Err() != nil {
			return answer, err
		}
	}
}
