package act

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// settlePause is between two tries of a call while the same call of an earlier process may be under way.
const settlePause = 200 * time.Millisecond

// settle brings something up. When podsync was killed, the runtime goes on with what it was asked for, since the
// supervisor keeps the connection open. To ask for the same then fails: a name is reserved, or a container is being
// started. That is no failure to tell of: try is repeated, and what the earlier call has made is adopted when
// it is found. It counts for all errors alike, since runtimes have no common words for these; a lasting one is told of
// a little later.
func (a *Actor) settle(ctx context.Context, pod *corev1.Pod, try func(context.Context) error, adopt func(topic.PodObservation) (done bool)) error {
	for {
		err := try(ctx)
		if err == nil || !a.Settling() {
			return err
		}
		a.Log.Debug("a call failed; an earlier process's may be under way", "pod", pod.Name, "namespace", pod.Namespace, "error", err, "retry_in", settlePause)
		select {
		case <-time.After(settlePause):
		case <-ctx.Done():
			return err
		}
		obs, readErr := a.Observe(ctx, string(pod.UID), nil)
		if readErr == nil && len(obs.Errors) == 0 && adopt(obs) {
			return nil
		}
	}
}
