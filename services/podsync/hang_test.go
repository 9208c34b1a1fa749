package podsync

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/runtime/cgroups"
	"kubelot.dev/services/podsync/internal/runtime/nodecgroups"
)

// hangs is a machine whose cgroups and directories hang where they are told to.
type hangs struct {
	nodecgroups.Manager

	at      string        // the call that hangs
	release chan struct{} // closed: it hangs no more

	mu     sync.Mutex
	calls  map[string]int
	fails  error               // what the node's cgroups can't be made for the next time
	limits corev1.ResourceList // what the node's cgroups were made for last
}

func (h *hangs) call(name string) {
	h.mu.Lock()
	h.calls[name]++
	h.mu.Unlock()
	if h.at == name {
		<-h.release
	}
}

func (h *hangs) count(name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[name]
}

func (h *hangs) EnsureNode(capacity, limits corev1.ResourceList) error {
	h.mu.Lock()
	err := h.fails
	h.fails = nil
	h.mu.Unlock()
	if err != nil {
		return err
	}
	h.call("make the node's cgroups")
	h.mu.Lock()
	h.limits = limits
	h.mu.Unlock()
	return h.Manager.EnsureNode(capacity, limits)
}

func (h *hangs) UpdateQOS(requests cgroups.Requests, complete bool) error {
	h.call("set shares")
	return h.Manager.UpdateQOS(requests, complete)
}

func (h *hangs) List() (map[types.UID]string, error) {
	h.call("list cgroups")
	return map[types.UID]string{"old": "/kubepods/podold"}, nil
}

func (h *hangs) Destroy(context.Context, types.UID) error {
	h.call("remove a cgroup")
	return nil
}

// hangingDirs are the directories of that machine.
type hangingDirs struct{ *hangs }

func (h hangingDirs) List() ([]types.UID, error) {
	h.call("list directories")
	return []types.UID{"old"}, nil
}

func (h hangingDirs) Remove(types.UID) error {
	h.call("remove a directory")
	return nil
}

// hang has a call of the daemon to the machine hang until the result is called.
func (b *bed) hang(at string) (h *hangs, release func()) {
	h = &hangs{at: at, release: make(chan struct{}), calls: map[string]int{}}
	b.prepare = func(s *Service) {
		d := s.dispatcher
		h.Manager = d.cgroups.Manager
		d.cgroups.Manager, d.orphans.remover.Cgroups, d.orphans.remover.Dirs = h, h, hangingDirs{h}
		b.loop = d.tasks
	}
	return h, func() { close(h.release) }
}

// wantBeats checks that the daemon's loop comes round: its beats, and so systemd's watchdog, depend on that.
func (b *bed) wantBeats() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Millisecond)
	defer cancel()
	if !b.loop.Do(ctx, func() {}) {
		b.t.Error("the loop doesn't come round")
	}
}

func TestAMachineThatHangsKeepsNoPodFromItsStart(t *testing.T) {
	for name, soft := range map[string]bool{
		"make the node's cgroups": true, // with their limits: the first try has made them without
		"set shares":              false,
		"list cgroups":            false,
		"remove a cgroup":         false,
		"list directories":        false,
		"remove a directory":      false,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				h, release := b.hang(name)
				if soft {
					h.fails = &cgroups.LimitsError{Cgroup: "kubepods", Err: errors.New("device or resource busy")}
				}
				b.start(fromAPI)
				b.node(110)
				web, late := requesting(pod("web", "u1"), "500m"), requesting(pod("late", "u2"), "500m")
				b.deliver(fromAPI, web)
				b.pass(2 * time.Minute)
				if n := h.count(name); n != 1 {
					t.Errorf("it was called %d times while it hung, want once", n)
				}
				b.wantBeats()
				b.deliver(fromAPI, web, late)
				b.wantRunning("late", "web")
				b.wantBeats()
				release()
				b.pass(time.Minute)
				b.deliver(fromAPI, web)
				b.wantRunning("web")
			})
		})
	}
}

// What the machine has may change while podsync runs, as when somebody has the kernel set huge pages aside. Pods run on
// if systemd, say, doesn't answer just then. What the Node object says of the machine changes nothing.
func TestTheNodesCgroupsFollowTheMachine(t *testing.T) {
	inBubble(t, func(b *bed) {
		h, _ := b.hang("")
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("web", "u1"))
		b.wantRunning("web")
		pages, made := corev1.ResourceName("hugepages-2Mi"), h.count("make the node's cgroups")
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1"}}
		n.Status.Capacity = corev1.ResourceList{pages: resource.MustParse("2Mi"), "memory": resource.MustParse("64Mi")}
		set(b, topic.NodeObject, "", *n)
		b.settle()
		if again := h.count("make the node's cgroups") - made; again != 0 {
			t.Errorf("made %d times for what the Node object says", again)
		}
		h.mu.Lock()
		h.fails = errors.New("systemd doesn't answer")
		h.mu.Unlock()
		set(b, topic.NodeMachine, "", topic.Machine{
			NumCores: 2, MemoryBytes: 1 << 30, HugePages: map[uint64]uint64{2048: 16}, PIDLimit: 4000, CgroupVersion: 2,
		})
		b.settle()
		if state, message := b.health(); state != topic.Healthy {
			t.Errorf("health is %s %q, want healthy", state, message)
		}
		for range 2 {
			b.pass(time.Minute)
			set(b, topic.NodeObject, "", *n)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if got := h.limits[pages]; got.Value() != 32<<20 || h.calls["make the node's cgroups"] != made+1 {
			t.Errorf("made %d times, the last time for %s of huge pages", h.calls["make the node's cgroups"], got.String())
		}
	})
}

// Pods can't run without the node's cgroups. Nothing else waits for them.
func TestPodsWaitForTheNodesCgroupsAndTheLoopDoesNot(t *testing.T) {
	inBubble(t, func(b *bed) {
		_, release := b.hang("make the node's cgroups")
		b.start(fromAPI)
		b.node(110)
		b.deliver(fromAPI, pod("web", "u1"))
		b.pass(time.Minute)
		b.wantBeats()
		b.wantRunning()
		if state, message := b.health(); state != topic.Degraded || !strings.Contains(message, "cgroups") {
			t.Errorf("health is %s %q, want degraded for want of the node's cgroups", state, message)
		}
		release()
		b.settle()
		b.wantRunning("web")
		if state, message := b.health(); state != topic.Healthy {
			t.Errorf("health is %s %q, want healthy", state, message)
		}
	})
}

// A pod that comes back under the UID of one whose leftovers are being removed waits for that; others don't.
func TestOnlyAPodWithTheSameUIDWaitsForARemoval(t *testing.T) {
	inBubble(t, func(b *bed) {
		_, release := b.hang("remove a directory")
		b.start(fromFile)
		b.node(110)
		b.deliver(fromFile)
		b.deliver(fromFile, pod("again", "old"), pod("other", "u1"))
		b.wantRunning("other")
		release()
		b.settle()
		b.wantRunning("again", "other")
	})
}

// What has come while the machine was asked what is left isn't taken for a leftover.
func TestAPodThatComesDuringTheLookIsNoOrphan(t *testing.T) {
	inBubble(t, func(b *bed) {
		h, release := b.hang("list directories")
		b.start(fromFile)
		b.node(110)
		b.deliver(fromFile)
		b.deliver(fromFile, pod("again", "old"))
		release()
		b.settle()
		b.wantRunning("again")
		if h.count("remove a directory")+h.count("remove a cgroup") > 0 {
			t.Error("the directory or cgroup of a pod that runs was removed")
		}
	})
}
