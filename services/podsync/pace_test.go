package podsync

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/kube"
	"kubelot.dev/services/podsync/internal/source"
)

// syncCost is what a sync takes for each pod that is wanted, in the tests that count.
const syncCost = 50 * time.Microsecond

// costs makes each sync take time in proportion to the pods, and counts pods looked at. A sync sets the daemon's health
// once.
func (b *bed) costs(pods int) (looked func() int) {
	syncs := 0
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onHealth = func() {
		syncs++
		time.Sleep(time.Duration(pods) * syncCost)
	}
	return func() int { return syncs * pods }
}

// written counts the UIDs in the messages of pod.sources.
func (b *bed) written() (uids func() int) {
	n := 0
	changes, err := topic.PodSources.Watch(b.t.Context(), b.others)
	if err != nil {
		b.t.Fatal(err)
	}
	go func() {
		for c := range changes {
			n += len(c.Value.Pods)
		}
	}()
	return func() int { return n }
}

func podsOf(n int) []*corev1.Pod {
	pods := make([]*corev1.Pod, 0, n)
	for i := range n {
		pods = append(pods, pod(fmt.Sprintf("web-%03d", i), fmt.Sprintf("u%d", i)))
	}
	return pods
}

// comeAndGo has pods come and go as the API server tells of them, one a millisecond, and counts the work: pods looked
// at, and UIDs written.
func comeAndGo(t *testing.T, n int) (looked, written int) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(int64(n))
		b.deliver(fromAPI)
		countLooked, countWritten := b.costs(n), b.written()
		pods := podsOf(n)
		changes := make(chan kube.Change[corev1.Pod])
		go source.Gather(changes, func(pods []*corev1.Pod) { b.sets <- source.Set{Source: fromAPI, Pods: pods} })
		defer close(changes)
		changes <- kube.Change[corev1.Pod]{Synced: true}
		for _, p := range pods {
			changes <- kube.Change[corev1.Pod]{Object: p}
			time.Sleep(time.Millisecond)
		}
		b.pass(time.Minute)
		if got := len(b.running()); got != n {
			t.Fatalf("%d of %d pods run", got, n)
		}
		if s, _ := get(b, topic.PodSources, ""); len(s.Pods) != n {
			t.Errorf("pod.sources has %d pods, want %d", len(s.Pods), n)
		}
		for _, p := range pods {
			changes <- kube.Change[corev1.Pod]{Object: p, Deleted: true}
			time.Sleep(time.Millisecond)
		}
		b.pass(time.Minute)
		if got := b.sandboxes(); got != 0 {
			t.Fatalf("%d of %d pods are left", got, n)
		}
		if s, _ := get(b, topic.PodSources, ""); len(s.Pods) != 0 || !s.Ready {
			t.Errorf("pod.sources is %+v, want it empty and ready", s)
		}
		looked, written = countLooked(), countWritten()
	})
	return looked, written
}

// Twice as many pods are twice the work, not four times.
func TestManyPodsAreNoQuadraticWork(t *testing.T) {
	looked, written := comeAndGo(t, 100)
	looked2, written2 := comeAndGo(t, 200)
	t.Logf("100 pods: %d looked at, %d UIDs written; 200 pods: %d and %d", looked, written, looked2, written2)
	if looked == 0 || looked2 > 5*looked/2 {
		t.Errorf("for 100 pods %d were looked at, for 200 %d", looked, looked2)
	}
	if written == 0 || written2 > 5*written/2 {
		t.Errorf("for 100 pods %d UIDs were written, for 200 %d", written, written2)
	}
}

// What comes alone waits for nothing, however many pods there are.
func TestASinglePodWaitsForNoTimer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(110)
		pods := podsOf(100)
		b.deliver(fromAPI, pods...)
		b.costs(100)
		b.pass(time.Minute)
		begin := time.Now()
		updates, err := topic.PodUpdate.Watch(b.t.Context(), b.others)
		if err != nil {
			t.Fatal(err)
		}
		b.tell(append(slices.Clone(pods), pod("late", "u-late")))
		for c := range updates {
			if c.Key == "u-late" {
				break
			}
		}
		if took := time.Since(begin); took > 10*time.Millisecond {
			t.Errorf("the pod got its worker after %s", took)
		}
	})
}

// The node's own pods, and whether all sources have delivered, are said at once.
func TestStaticPodsAreStatedAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI, fromFile)
		b.node(110)
		b.deliver(fromAPI, podsOf(100)...)
		b.deliver(fromFile)
		b.pass(time.Minute)
		told := func(want func(s topic.Sources) bool) bool {
			time.Sleep(5 * time.Millisecond)
			s, _ := get(b, topic.PodSources, "")
			return want(s)
		}
		b.tell(podsOf(101))
		if !told(func(s topic.Sources) bool { return len(s.Pods) == 101 }) {
			t.Error("the first change after a while waits")
		}
		b.tell(podsOf(102))
		if !told(func(s topic.Sources) bool { return len(s.Pods) == 101 }) {
			t.Error("the second change of the API server's pods isn't gathered")
		}
		b.sendFrom(fromFile, pod("proxy", "u-proxy"))
		if !told(func(s topic.Sources) bool { return len(s.Pods) == 103 && slices.Contains(s.Pods, "u-proxy") }) {
			t.Error("a static pod isn't in pod.sources at once")
		}
		b.tell(podsOf(99))
		b.pass(time.Second)
		if !told(func(s topic.Sources) bool { return len(s.Pods) == 100 }) {
			t.Error("what was gathered isn't written in the end")
		}
	})
}

// tell delivers a set of the API server's, and a millisecond passes.
func (b *bed) tell(pods []*corev1.Pod) { b.sendFrom(fromAPI, pods...) }

func (b *bed) sendFrom(from topic.Source, pods ...*corev1.Pod) {
	b.sets <- source.Set{Source: from, Pods: pods}
	time.Sleep(time.Millisecond)
}

// A pod that is deleted by force is changed and removed in one moment: the set with its short grace period counts, also
// where the next one, without the pod, comes before a sync.
func TestTheLastStateOfAPodCounts(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.fake.On("StopContainer", func(ctx context.Context, req any) error { // its process ignores SIGTERM
			select {
			case <-time.After(time.Duration(req.(*runtimeapi.StopContainerRequest).GetTimeout()) * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("web", "u1"))
		b.wantRunning("web")
		// While the loop is held up by a sync both sets come.
		b.mu.Lock()
		b.onHealth = sync.OnceFunc(func() { time.Sleep(20 * time.Millisecond) })
		b.mu.Unlock()
		b.tell([]*corev1.Pod{deletedWithin(pod("web", "u1"), 600)})
		for _, set := range [][]*corev1.Pod{{deletedWithin(pod("web", "u1"), 1)}, {}} {
			go func() { b.sets <- source.Set{Source: fromAPI, Pods: set} }()
			time.Sleep(time.Millisecond)
		}
		b.pass(10 * time.Second)
		b.wantRunning()
	})
}
