package kube

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// During an outage one watch after the other asks, first at once and then each 2 to 3 s. After it all of them go on
// within firstSpread, and within more where one outage follows the other.
const (
	turnDelay    = reflectDelay
	turnDelayMax = 2 * time.Second
	firstSpread  = 500 * time.Millisecond
	lastSpread   = 2 * reflectDelayMax
	// calm is how long the server must have answered for the next outage to count as the first again.
	calm = time.Minute
)

// outage is the state that all watches of a client share: whether the server answers. While it doesn't, a hundred
// watches that try for themselves would be a load for a server that comes back, and each would learn of its return
// late. So they take turns, and when one gets an answer all go on.
type outage struct {
	host string
	// turn is held by the watch that asks next.
	turn chan struct{}

	mu     sync.Mutex
	down   bool
	over   chan struct{} // closed at the end of the outage
	ended  time.Time     // the last one
	pauses wait.Backoff  // between two turns
	spread time.Duration
}

func newOutage(host string) *outage {
	return &outage{host: host, turn: make(chan struct{}, 1)}
}

// set takes the outcome of a request.
func (o *outage) set(log *slog.Logger, err error) {
	down := err != nil && retriable(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if down == o.down {
		return
	}
	o.down = down
	if down {
		o.over = make(chan struct{})
		o.pauses = wait.Backoff{Duration: turnDelay, Factor: 2, Jitter: 0.5, Cap: turnDelayMax, Steps: 20}
		o.spread = min(2*o.spread, lastSpread)
		if time.Since(o.ended) > calm {
			o.spread = firstSpread
		}
		log.Warn("can't reach the API server, retrying; the last known objects stay in use",
			"server", o.host, "error", err)
		return
	}
	o.ended = time.Now()
	close(o.over)
	log.Info("the API server answers again", "server", o.host)
}

// wait returns when a watch whose request failed with err should ask again, or at the end of ctx. It returns false at
// once if no outage is the cause: the watch has a pause of its own for that.
func (o *outage) wait(ctx context.Context, err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return false // the server is there and busy, or refuses
	}
	o.mu.Lock()
	down, over := o.down, o.over
	o.mu.Unlock()
	if !down {
		return false
	}
	select {
	case <-over:
	case <-ctx.Done():
	case o.turn <- struct{}{}:
		defer func() { <-o.turn }()
		select {
		case <-time.After(o.pause()):
			return true
		case <-over:
		case <-ctx.Done():
		}
	}
	select {
	case <-time.After(o.share()):
	case <-ctx.Done():
	}
	return true
}

func (o *outage) pause() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pauses.Step()
}

// share is the part of the spread that a watch waits.
func (o *outage) share() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return rand.N(o.spread)
}
