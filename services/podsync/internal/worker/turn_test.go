package worker

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
	"kubelot.dev/services/podsync/internal/worker/slots"
)

func (h *fakeExecutor) turnOf(action string) (slots.Turn, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := slices.Index(h.actions, action)
	if i < 0 {
		return slots.Turn{}, false
	}
	return h.turns[i], true
}

// Stops go in the order of the deletions, whatever the order in which the pods came; what is left is removed after
// them.
func TestStopsGoInTheOrderOfDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := uint64(2)
		next := func() uint64 { last++; return last }
		older, younger := &fakeExecutor{obs: runs()}, &fakeExecutor{obs: runs()}
		first, _ := launch(t, Config{Pod: testPod(), Rank: 1, NextRank: next}, runs(), older)
		second, _ := launch(t, Config{Pod: testPod(), Rank: 2, NextRank: next}, runs(), younger)
		for _, w := range []*Worker{second, first} {
			w.Update(deletedWithin(30), nil)
			w.Remove()
			settle()
			w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
			settle()
		}
		// The younger pod was deleted first. Its end has the third place, the removal of what is left the fourth, by
		// when the older pod wasn't deleted yet.
		for want, got := range map[uint64]struct {
			of     *fakeExecutor
			action string
		}{
			3: {younger, "stop container x"}, 4: {younger, "remove sandboxes "},
			5: {older, "stop container x"}, 6: {older, "remove sandboxes "},
		} {
			if turn, done := got.of.turnOf(got.action); !done || turn.Rank != want {
				t.Errorf("%q has rank %d (done: %v), want %d", got.action, turn.Rank, done, want)
			}
		}
		container, _ := younger.turnOf("stop container x")
		if sandbox, _ := younger.turnOf("stop sandbox s"); sandbox.Rank != container.Rank {
			t.Errorf("the sandbox is stopped with rank %d, the container with %d; want one turn", sandbox.Rank, container.Rank)
		}
	})
}

// The node needs the resources of a pod that it evicts: its end waits for no other's, also where it waited by then.
func TestAnEvictedPodWaitsForNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fakeExecutor{obs: runs(), slow: map[plan.Kind]time.Duration{plan.StopContainer: 10 * time.Second}}
		w, _ := launch(t, Config{Pod: testPod(), Rank: 1}, runs(), h)
		w.Update(deletedWithin(30), nil)
		settle()
		turn, waits := h.turnOf("stop container x")
		if !waits || urgent(turn) {
			t.Fatalf("actions %v: want the stop of a deleted pod to wait for its turn", h.actions)
		}
		w.Evict(Eviction{Reason: "Evicted", Message: "the node was low on memory"})
		settle()
		if !urgent(turn) {
			t.Error("the stop that waits doesn't hear of the eviction")
		}
		time.Sleep(10 * time.Second)
		settle()
		if turn, _ := h.turnOf("stop sandbox s"); !urgent(turn) {
			t.Error("its sandbox waits for its turn")
		}
	})
}

func urgent(turn slots.Turn) bool {
	select {
	case <-turn.Urgent:
		return true
	default:
		return false
	}
}
