package source

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
		Gather(changes, func(pods []*corev1.Pod) {
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

// So it is where the set that would have said it is still being gathered.
func TestTheLastWordOnTheGracePeriodIsHandedOverWithinAGathering(t *testing.T) {
	pod := func(grace *int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", DeletionGracePeriodSeconds: grace}}
	}
	synctest.Test(t, func(t *testing.T) {
		changes, none := make(chan kube.Change[corev1.Pod]), int64(0)
		go func() {
			defer close(changes)
			changes <- kube.Change[corev1.Pod]{Object: pod(nil)}
			changes <- kube.Change[corev1.Pod]{Synced: true}
			changes <- kube.Change[corev1.Pod]{Object: pod(&none)}
			changes <- kube.Change[corev1.Pod]{Object: pod(&none), Deleted: true}
		}()
		var got []string
		Gather(changes, func(pods []*corev1.Pod) {
			time.Sleep(10 * time.Millisecond) // what follows is gathered
			switch {
			case len(pods) == 0:
				got = append(got, "gone")
			case pods[0].DeletionGracePeriodSeconds == nil:
				got = append(got, "there")
			default:
				got = append(got, "deleted")
			}
		})
		if want := []string{"there", "deleted", "gone"}; !slices.Equal(got, want) {
			t.Errorf("the pod is %v in the sets, want %v", got, want)
		}
	})
}

// A set costs its taker something for each pod, so that a burst of changes must not be as many sets.
func TestBurstsOfChangesAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const burst, taking = 1000, 2 * time.Millisecond
		pod := func(i int) *corev1.Pod {
			return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				UID:             types.UID(fmt.Sprint("u", i%100)),
				ResourceVersion: fmt.Sprint(i),
			}}
		}
		changes := make(chan kube.Change[corev1.Pod])
		var last time.Time
		go func() {
			defer close(changes)
			changes <- kube.Change[corev1.Pod]{Synced: true}
			for i := range burst {
				time.Sleep(time.Millisecond)
				changes <- kube.Change[corev1.Pod]{Object: pod(i)}
			}
			last = time.Now()
			time.Sleep(time.Minute)
		}()
		sets, newest := 0, ""
		var heard time.Time
		Gather(changes, func(pods []*corev1.Pod) {
			time.Sleep(taking)
			sets++
			if len(pods) > 0 && pods[len(pods)-1].ResourceVersion != newest {
				newest = pods[len(pods)-1].ResourceVersion
				heard = time.Now()
			}
		})
		if sets > burst/10 {
			t.Errorf("%d changes within a second were %d sets, want at most a tenth", burst, sets)
		}
		if late := heard.Sub(last); newest != fmt.Sprint(burst-1) || late > 100*time.Millisecond {
			t.Errorf("the last change heard of is %s, %v after it came", newest, late)
		}
	})
}

// Where nothing else changes a change is handed over at once.
func TestAChangeByItselfIsHandedOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan kube.Change[corev1.Pod])
		go func() {
			defer close(changes)
			changes <- kube.Change[corev1.Pod]{Synced: true}
			for i := range 3 {
				time.Sleep(time.Second)
				changes <- kube.Change[corev1.Pod]{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u",
					i))}}}
			}
		}()
		begin := time.Now()
		var at []time.Duration
		Gather(changes, func([]*corev1.Pod) {
			at = append(at, time.Since(begin))
			time.Sleep(2 * time.Millisecond)
		})
		if want := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("sets at %v, want %v", at, want)
		}
	})
}

// A machine on which everything takes long makes a new pod wait no longer for it: the rest follows from the pods.
func TestASlowMachineMakesNoRestLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := make(chan kube.Change[corev1.Pod])
		go func() {
			defer close(changes)
			changes <- kube.Change[corev1.Pod]{Synced: true}
			for i := range 3 {
				time.Sleep(150 * time.Millisecond)
				changes <- kube.Change[corev1.Pod]{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint("u",
					i))}}}
			}
		}()
		begin := time.Now()
		var at []time.Duration
		Gather(changes, func([]*corev1.Pod) {
			at = append(at, time.Since(begin))
			time.Sleep(100 * time.Millisecond)
		})
		want := []time.Duration{0, 150 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("sets at %v, want %v", at, want)
		}
	})
}
