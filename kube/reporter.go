package kube

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// reporter logs what goes wrong with watches, once per cause: a node that loses its API server has a
// hundred watches that fail every few seconds, and one thing to say.
type reporter struct {
	log   *slog.Logger
	whole *outage
	mu    sync.Mutex
	last  string
}

// outage is the state that all watches of a client share.
type outage struct {
	host string
	mu   sync.Mutex
	down bool
}

func (r *reporter) asked(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // there are no credentials yet, which has been told
	}
	if err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
		return
	}
	r.whole.set(r.log, err)
	text := ""
	if err != nil && !retriable(err) {
		text = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if text != "" && text != r.last {
		r.log.Warn("the API server refuses a watch, retrying", "error", err)
	}
	r.last = text
}

func (o *outage) set(log *slog.Logger, err error) {
	down := err != nil && retriable(err)
	o.mu.Lock()
	defer o.mu.Unlock()
	if down == o.down {
		return
	}
	o.down = down
	if down {
		log.Warn("can't reach the API server, retrying; the last known objects stay in use",
			"server", o.host, "error", err)
		return
	}
	log.Info("the API server answers again", "server", o.host)
}
