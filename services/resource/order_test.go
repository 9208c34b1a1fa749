package resource

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin"
)

// A pod that was deleted by force has what it had until it has ended. Its successor waits for that.
func TestThePlaceOfAPodThatNobodyWants(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		b.lists(gpu, "g0")
		old := b.wants("old", map[corev1.ResourceName]string{gpu: "1", corev1.ResourceCPU: "3"})
		b.says("old", "allocated")
		b.state(old, topic.Terminating)
		b.wants("early", map[corev1.ResourceName]string{gpu: "1"})
		b.says("early", "refused UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable "+
			"for "+gpu+". Requested: 1, Available: 0, which is unexpected")
		if err := b.pods.Set("old", topic.Pod{Pod: old, Lifecycle: topic.Terminating, Removed: true}); err != nil {
			t.Fatal(err)
		}
		b.wants("new", map[corev1.ResourceName]string{gpu: "1", corev1.ResourceCPU: "3"})
		if got := b.said("new"); !strings.HasPrefix(got, "allocating: waiting for other pods") {
			t.Errorf("the successor is %q", got)
		}
		if err := b.pods.Delete("old"); err != nil {
			t.Fatal(err)
		}
		b.says("new", "allocated")
	})
}

// A pod that can't be ended keeps others from being refused for some time only.
func TestAPodIsRefusedForWhatNobodyElseHas(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		old := b.wants("old", map[corev1.ResourceName]string{gpu: "1"})
		deadline := time.Now().Add(time.Minute)
		if err := b.pods.Set("old", topic.Pod{
			Pod: old, Lifecycle: topic.Terminating, Removed: true, Deadline: &deadline,
		}); err != nil {
			t.Fatal(err)
		}
		b.wants("new", map[corev1.ResourceName]string{gpu: "1"})
		if got := b.said("new"); !strings.HasPrefix(got, "allocating: waiting for other pods") {
			t.Errorf("the successor is %q", got)
		}
		time.Sleep(time.Minute + overdue + tryAgain)
		b.says("new", "refused UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "+
			gpu+". Requested: 1, Available: 0, which is unexpected")
	})
}

// The pod that came first gets the device of a plugin that hung, not the one that has waited behind it.
func TestAPodThatWaitsBehindAnotherDoesNotOvertakeIt(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.mu.Lock()
		b.fail = deviceplugin.ErrSlow
		b.hang[gpu] = make(chan struct{})
		hung := b.hang[gpu]
		b.mu.Unlock()
		first, second := asks("a", "gpu=1"), asks("b", "gpu=1")
		b.come(first, second)
		b.mu.Lock()
		b.hang[gpu], b.fail = nil, nil
		b.mu.Unlock()
		close(hung)
		time.Sleep(2 * tryAgain)
		b.says("a", "allocated")
		if got := b.said("b"); !strings.HasPrefix(got, "refused ") {
			t.Errorf("the second pod is %q", got)
		}
	})
}

// Some plugins take the oldest pod of the API server that waits for what they are asked for, whoever it is for.
func TestAPluginIsAskedAboutOnePodAfterTheOther(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0", "g1", "g2", "g3")
		b.lists(nic, "n0")
		hung := make(chan struct{})
		b.mu.Lock()
		b.hang[gpu] = hung
		b.mu.Unlock()
		b.come(asks("a", "gpu=1", "gpu=1"), asks("b", "gpu=1"), asks("c", "nic=1"))
		b.says("c", "allocated")
		if n := len(b.calls()); n != 2 { // and that about c
			t.Errorf("the plugins are asked %q", b.calls())
		}
		b.mu.Lock()
		delete(b.hang, gpu)
		b.mu.Unlock()
		close(hung)
		synctest.Wait()
		b.says("a", "allocated")
		b.says("b", "allocated")
		var order []string
		for _, call := range b.calls() {
			if strings.HasPrefix(call, "Allocate "+gpu) {
				order = append(order, call[len(call)-2:])
			}
		}
		var want []string
		for _, uid := range []string{"a", "b"} {
			for _, c := range []string{"c0", "c1"} {
				for _, d := range b.allocation(uid).Containers[c].Devices {
					want = append(want, d.ID)
				}
			}
		}
		if !slices.Equal(order, want) {
			t.Errorf("the plugin is asked about %q, want %q", order, want)
		}
	})
}
