package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

// exhausted is a kind of volumes of which the node can have no more.
type exhausted struct{ plugin.Plugin }

func (exhausted) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	return plugin.Result{}, &plugin.Failure{
		Reason: reasonFailedMount, What: "MountVolume.WaitForAttach failed : ",
		Err: fmt.Errorf("%w: no room", plugin.ErrExhausted), Unattached: true,
	}
}

// broken is a kind of volumes that fail and need not be attached.
type broken struct{ plugin.Plugin }

func (broken) Mount(context.Context, plugin.Request) (plugin.Result, error) {
	return plugin.Result{}, errors.New("broken")
}

// A pod whose volume can't be attached for lack of room is rejected once it has waited long enough.
func TestPodWithoutRoomForItsVolumes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.kinds = plugin.List{
			{Name: "full", Claims: func(v *corev1.Volume) bool { return v.Name == "data" }, Plugin: exhausted{}},
			{Name: "broken", Claims: func(v *corev1.Volume) bool { return v.Name == "config" }, Plugin: broken{}},
		}
		var mu sync.Mutex
		var list []topic.Eviction
		rejected := func() []topic.Eviction {
			mu.Lock()
			defer mu.Unlock()
			return list
		}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() {
			served <- topic.PodEvict.Serve(ctx, w.podsync, func(_ context.Context, e topic.Eviction) (topic.EvictionReply,
				error,
			) {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, e)
				return topic.EvictionReply{}, nil
			})
		}()
		w.start()
		w.update(podSpec("u1", claim("data"), claim("config")), topic.Syncing)
		w.advance(waitsLong - time.Second)
		if early := rejected(); len(early) > 0 {
			t.Fatalf("rejected too early: %+v", early[0])
		}
		w.advance(2 * lastPause)
		message := "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[config data], " +
			"unattached volumes=[data], failed to process volumes=[]: MountVolume.WaitForAttach failed : " +
			plugin.ErrExhausted.Error() + ": no room"
		if list := rejected(); len(list) == 0 || list[0].Reason != topic.ReasonExhausted || list[0].UID != "u1" ||
			list[0].Message != "Pod was rejected: "+message {
			t.Errorf("rejected: %+v", list)
		}
		events := strings.Join(w.events.all(), "\n")
		if !strings.Contains(events, topic.ReasonExhausted+" pod-u1: "+message) {
			t.Errorf("events:\n%s", events)
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
