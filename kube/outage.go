package kube

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// During an outage the watches ask one at a time: the first soon, later ones every 2 to 3 s. After it all of them go on
// within firstSpread. An outage that begins while they go on doubles that, up to lastSpread: the server is hardly
// there.
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
	// turn is held by the watch that pauses before it asks. It is released before the request, so that one that hangs
	// blocks no other.
	turn chan struct{}

	mu     sync.Mutex
	down   bool
	over   chan struct{} // closed at the end of the outage
	ended  time.Time     // the last one
	pauses wait.Backoff  // between two turns
	spread time.Duration
}

func newOutage(host string) *outage {
	return &outage{host: host, turn: make(chan struct{}, 1), spread: firstSpread, pauses: turns()}
}

func turns() wait.Backoff {
	return wait.Backoff{Duration: turnDelay, Factor: 2, Jitter: 0.5, Cap: turnDelayMax, Steps: 20}
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
		answered := time.Since(o.ended)
		switch {
		case answered > calm:
			o.pauses, o.spread = turns(), firstSpread
		case unanswered(err) && answered < o.spread+turnDelayMax:
			o.spread = min(2*o.spread, lastSpread)
		}
		what := "can't reach the API server"
		if !unanswered(err) {
			what = "the API server answers with an error"
		}
		log.Warn(what+", retrying; the last known objects stay in use", "server", o.host, "error", err)
		return
	}
	o.ended = time.Now()
	close(o.over)
	log.Info("the API server answers again", "server", o.host)
}

// unanswered reports that no API server has answered: err is of the network, or of a proxy that has none behind it.
// Without credentials nobody was asked.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return apierrors.IsUnexpectedServerError(err) && code >= http.StatusBadGateway && code <= http.StatusGatewayTimeout
	}
	return !errors.Is(err, fs.ErrNotExist)
}

// wait reports whether a watch whose request failed with err should ask again, and returns when it should, or at the
// end of ctx. It returns false if the server has answered, after the time that the server asks for: then the reflector
// pauses.
func (o *outage) wait(ctx context.Context, err error) bool {
	if !unanswered(err) {
		if seconds, asked := apierrors.SuggestsClientDelay(err); asked && !asksAgain(err) {
			sleep(ctx, min(time.Duration(seconds)*time.Second, requestTimeout))
		}
		return false
	}
	o.mu.Lock()
	down, over := o.down, o.over
	o.mu.Unlock()
	if !down || !o.takeTurn(ctx, over) {
		sleep(ctx, o.share())
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// takeTurn waits for a turn and reports true, or until the outage is over or the end of ctx.
func (o *outage) takeTurn(ctx context.Context, over <-chan struct{}) bool {
	select {
	case <-over:
		return false
	case <-ctx.Done():
		return false
	case o.turn <- struct{}{}:
	}
	defer func() { <-o.turn }()
	select {
	case <-time.After(o.pause()):
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
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
