package podsync

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A label may be newer than what lease has said of the Node. The kubelet asks the API server too before it refuses a
// pod for its labels.
func TestALabelThatLeaseHasNotTold(t *testing.T) {
	inBubble(t, func(b *bed) {
		var asked atomic.Int32
		b.prepare = func(s *Service) {
			s.dispatcher.node.AskBy(func(context.Context, string) (*corev1.Node, error) {
				if asked.Add(1) > 1 {
					return nil, errors.New("away")
				}
				n := s.dispatcher.node.Node().DeepCopy()
				n.Labels = map[string]string{"disk": "fast"}
				return n, nil
			})
		}
		b.start(fromAPI)
		b.node(110)
		plain, fast, slow := pod("plain", "u1"), pod("fast", "u2"), pod("slow", "u3")
		fast.Spec.NodeSelector = map[string]string{"disk": "fast"}
		slow.Spec.NodeSelector = map[string]string{"disk": "slow"}
		b.deliver(fromAPI, plain, fast)
		b.wantRunning("fast", "plain")
		if n := asked.Load(); n != 1 {
			t.Errorf("the API server was asked %d times, want once, for the pod that the known labels keep away", n)
		}
		b.deliver(fromAPI, plain, fast, slow)
		b.wantFailed("u3", "NodeAffinity")
		if n := asked.Load(); n != 2 {
			t.Errorf("the API server was asked %d times, want once more for another pod", n)
		}
	})
}
