package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// rejectTimeout bounds the wait for podsync's answer; the volume's next failure asks again.
const rejectTimeout = 10 * time.Second

// rejectExhausted has podsync reject a pod that has waited for a volume which can't be attached, for the node can have
// no more of them: another node may have room. It has waited as long as the kubelet lets it.
func rejectExhausted(s *Service, p *pod, v *volume, why error) {
	starts := v.phase != topic.VolumeMounted && s.stage(p) == topic.Syncing
	if !starts || !errors.Is(why, plugin.ErrExhausted) || s.now().Sub(v.wanted) < waitsLong {
		return
	}
	ref, message := p.ref, exhaustedMessage(p, why)
	s.workers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), rejectTimeout)
		defer cancel()
		_, err := topic.PodEvict.Do(ctx, s.conn, topic.Eviction{
			Ref: ref, Reason: topic.ReasonExhausted, Message: "Pod was rejected: " + message,
		})
		if err != nil {
			s.log.Warn("can't have a pod rejected whose volumes can't be attached, retrying", "namespace", ref.Namespace,
				"pod", ref.Name, "uid", ref.UID, "error", err)
			return
		}
		s.ports.Events.Record(topic.Event{
			Kind: "Pod", Ref: ref, Type: corev1.EventTypeWarning, Reason: topic.ReasonExhausted, Message: message,
		})
	})
}

// exhaustedMessage is the kubelet's.
func exhaustedMessage(p *pod, why error) string {
	var unmounted, unattached []string
	for _, v := range p.volumes {
		if v.phase == topic.VolumeMounted {
			continue
		}
		unmounted = append(unmounted, v.spec.Name)
		if v.unattached {
			unattached = append(unattached, v.spec.Name)
		}
	}
	slices.Sort(unmounted)
	slices.Sort(unattached)
	return fmt.Sprintf("Node has reached its volume attachment limit, rejecting pod. unmounted volumes=%v, unattached "+
		"volumes=%v, failed to process volumes=[]: %v", unmounted, unattached, why)
}
