package worker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rounds measures the times in which a worker has something under way for one purpose without a pause. Such a round is
// the nearest counterpart of a sync of the kubelet, whose workers do one thing after the other.
type rounds struct {
	metrics   Metrics
	uid       types.UID // the pod's
	began     time.Time // zero between rounds
	operation string
}

// begin is called before an action begins. The action belongs to the round under way, unless the pod is to end now.
func (r *rounds) begin(operation string, ending bool) {
	if r.operation == operation || !ending && !r.began.IsZero() {
		return
	}
	r.end()
	r.began, r.operation = time.Now(), operation
}

// end is called when nothing is under way any more.
func (r *rounds) end() {
	if !r.began.IsZero() {
		r.metrics.Worked(r.uid, r.operation, time.Since(r.began))
		r.began, r.operation = time.Time{}, ""
	}
}
