package image

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The kubelet's back-off of image pulls.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 300 * time.Second
	// forgetAfter is how long after the last failure a try counts as the first again.
	forgetAfter = 2 * maxDelay
)

// attempt is what is remembered about the failed pulls of one image for one pod.
type attempt struct {
	failedAt time.Time
	delay    time.Duration
	// reason and message are those of the last failure.
	reason, message string
}

func (a attempt) retryAt() time.Time { return a.failedAt.Add(a.delay) }

// backoff remembers failed pulls. It is pure except for its own map: the caller gives the time, and the lock.
type backoff map[types.UID]map[string]attempt

// waiting reports whether it's too early for another try.
func (b backoff) waiting(pod types.UID, image string, now time.Time) (attempt, bool) {
	a, ok := b[pod][image]
	return a, ok && now.Before(a.retryAt())
}

// failed counts a failure of a pull that began at the given time. A pull that several containers of a pod waited
// for counts once.
func (b backoff) failed(pod types.UID, image string, began, now time.Time, why Error) attempt {
	a, ok := b[pod][image]
	switch {
	case !ok || now.Sub(a.failedAt) > forgetAfter:
		a = attempt{failedAt: now, delay: firstDelay}
	case !a.failedAt.Before(began):
	default:
		a = attempt{failedAt: now, delay: min(2*a.delay, maxDelay)}
	}
	a.reason, a.message = why.Reason, why.Message
	if b[pod] == nil {
		b[pod] = map[string]attempt{}
	}
	b[pod][image] = a
	return a
}

// succeeded lets the next failure be the first again.
func (b backoff) succeeded(pod types.UID, image string) {
	delete(b[pod], image)
	if len(b[pod]) == 0 {
		delete(b, pod)
	}
}
