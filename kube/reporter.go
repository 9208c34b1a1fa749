package kube

import (
	"errors"
	"io/fs"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// reporter logs what goes wrong with watches, once per cause: a node that loses its API server has a
// hundred watches that fail every few seconds, and one thing to say.
type reporter struct {
	log   *slog.Logger
	whole *outage
	mu    sync.Mutex
	last  string
}

func (r *reporter) asked(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // there are no credentials yet, which has been told
	}
	if asksAgain(err) {
		err = nil
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

// asksAgain reports an answer after which the reflector asks otherwise at once.
func asksAgain(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
