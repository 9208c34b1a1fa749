package podsync

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/daemon/config"
	"kubelot.dev/kube"
)

// The watch may coalesce the change and the removal of a pod that is deleted by force.
func TestTheLastWordOnTheGracePeriodIsHandedOver(t *testing.T) {
	pod := func(grace int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", DeletionGracePeriodSeconds: &grace}}
	}
	for name, c := range map[string]struct {
		last *corev1.Pod
		want []int64 // the grace period in each set; -1 where the pod isn't in it
	}{
		"by force": {pod(0), []int64{60, 0, -1}},
		"in order": {pod(60), []int64{60, -1}},
	} {
		changes := make(chan kube.Change[corev1.Pod])
		go func() {
			defer close(changes)
			changes <- kube.Change[corev1.Pod]{Object: pod(60)}
			changes <- kube.Change[corev1.Pod]{Synced: true}
			changes <- kube.Change[corev1.Pod]{Object: c.last, Deleted: true}
		}()
		var got []int64
		gather(changes, func(pods []*corev1.Pod) {
			if len(pods) == 0 {
				got = append(got, -1)
			}
			for _, p := range pods {
				got = append(got, *p.DeletionGracePeriodSeconds)
			}
		})
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the sets have the grace periods %v, want %v", name, got, c.want)
		}
	}
}

func TestPullsAreSerialWhereTheConfigurationSaysSo(t *testing.T) {
	yes, no, three := true, false, int32(3)
	for name, c := range map[string]struct {
		serialize *bool
		parallel  *int32
		want      int // 0 is the puller's own default
	}{
		"unset":               {nil, nil, 0},
		"serialize":           {&yes, nil, 1},
		"not serialize":       {&no, nil, 0},
		"a limit":             {&no, &three, 3},
		"a limit and nothing": {nil, &three, 3},
	} {
		cfg := &config.Config{}
		cfg.Kubelet.SerializeImagePulls, cfg.Kubelet.MaxParallelImagePulls = c.serialize, c.parallel
		if got := imageConfig(cfg).MaxParallel; got != c.want {
			t.Errorf("%s: %d pulls at a time, want %d", name, got, c.want)
		}
	}
}
