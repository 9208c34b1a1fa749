package lease

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// put makes the server have this Node at this version, and tells the watchers.
func (s *server) put(node *corev1.Node, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node, s.version = node.DeepCopy(), version-1
	s.changed()
}

// dropped are leases behind a load balancer that has forgotten the connection: requests hang until a new one is opened.
type dropped struct {
	*server
	open chan struct{}
}

func (d dropped) UpdateLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	select {
	case <-d.open:
		return d.server.UpdateLease(ctx, lease)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (d dropped) Reconnect() {
	d.server.Reconnect()
	close(d.open)
}

func TestADroppedConnectionCostsNoLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := dropped{
			&server{node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "uid-1"}}},
			make(chan struct{}),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		r := newRenewer(s.server, &said{})
		r.api = s
		go func() { defer close(done); r.run(ctx) }()
		began := time.Now()
		for {
			if _, n, _ := s.renewed(); n > 1 {
				break
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if took := time.Since(began); took >= 35*time.Second {
			t.Errorf("the lease, which lasts 40 s, was renewed after %s", took)
		}
		cancel()
		<-done
	})
}

// An API server that was restored from a backup has an older Node, at a version that has been before.
func TestARestoredNodeIsBroughtUpToDate(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run("the watch tells of it: "+strconv.FormatBool(told), func(t *testing.T) {
			server := &server{version: 1000}
			run(t, server, func(r *rig) {
				r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
				r.beats()
				defer r.start()()
				time.Sleep(time.Second)
				synctest.Wait()
				old, _ := server.get()
				if readyOf(old) != corev1.ConditionTrue {
					t.Fatal("the node isn't Ready")
				}
				condition(old.Status.Conditions, corev1.NodeReady).Status = corev1.ConditionFalse
				if !told {
					server.mu.Lock()
					server.watchers = nil
					server.mu.Unlock()
				}
				server.put(old, 7)
				for range 12 {
					r.beats()
					time.Sleep(30 * time.Second)
					synctest.Wait()
				}
				if n, _ := server.get(); readyOf(n) != corev1.ConditionTrue {
					t.Errorf("Ready %s six minutes after the restore", readyOf(n))
				}
			})
		})
	}
}

// Two machines with one name, or any other writer of the node's own conditions, must not set off a storm of writes.
func TestADuelOfWritersIsSlow(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		defer r.start()()
		time.Sleep(time.Second)
		synctest.Wait()
		ctx, cancel := context.WithCancel(r.t.Context())
		defer cancel()
		watched := server.WatchNode(ctx, "n1")
		turns, end := 0, time.After(30*time.Second)
		for duel := true; duel && turns < 200; {
			select {
			case c := <-watched:
				if c.Synced || readyOf(c.Object) != corev1.ConditionTrue {
					continue
				}
				turns++
				other := c.Object.DeepCopy()
				condition(other.Status.Conditions, corev1.NodeReady).Status = corev1.ConditionFalse
				version, _ := strconv.Atoi(other.ResourceVersion)
				server.put(other, version+1)
			case <-end:
				duel = false
			}
		}
		if turns > 40 {
			t.Errorf("%d writes in 30 s, or before their end", turns)
		}
	})
}

var _ leases = dropped{}

// A Node that is Ready stays so while a process that has just started has not yet heard from the bus: the API server
// may answer first.
func TestARestartDoesNotTurnReadyBeforeTheBusIsRead(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		stop := r.start()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		node, before := server.get()
		if readyOf(node) != corev1.ConditionTrue {
			t.Fatalf("Ready is %s to begin with", readyOf(node))
		}
		stop()
		r.bus.Disconnect()
		defer r.start()()
		time.Sleep(time.Minute)
		synctest.Wait()
		if node, writes := server.get(); writes != before || readyOf(node) != corev1.ConditionTrue {
			t.Errorf("without a word from the bus the Node was written %d times, and is Ready=%s", writes-before, readyOf(node))
		}
		r.bus.Reconnect()
		r.beats()
		time.Sleep(time.Minute)
		synctest.Wait()
		if node, writes := server.get(); writes == before || readyOf(node) != corev1.ConditionTrue {
			t.Errorf("after the bus was read the Node was written %d times, and is Ready=%s", writes-before, readyOf(node))
		}
	})
}

// The bus is away for longer than a daemon may be silent. When it is back the daemons are heard one after the other,
// and the node is Ready all the time.
func TestABusThatComesBackDoesNotTurnReady(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		time.Sleep(30 * time.Second)
		r.beats()
		sleeper := r.bus.Conn("resource")
		asleep := topic.DaemonHealth{State: topic.Healthy, Beat: time.Now(), Asleep: true}
		r.must(topic.Health.Writer(sleeper).Set("resource", asleep))
		sleeper.Close()
		synctest.Wait()
		before, _ := server.get()
		if readyOf(before) != corev1.ConditionTrue {
			t.Fatal("not Ready at first")
		}
		r.bus.Disconnect()
		time.Sleep(2 * time.Minute)
		r.bus.Reconnect()
		for _, name := range vital {
			r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()}))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(20 * time.Second)
		after, _ := server.get()
		was := condition(before.Status.Conditions, corev1.NodeReady).LastTransitionTime
		if c := condition(after.Status.Conditions, corev1.NodeReady); c.Status != corev1.ConditionTrue ||
			!c.LastTransitionTime.Equal(&was) {
			t.Errorf("Ready is %s since %s, want since %s: %s", c.Status, c.LastTransitionTime, was, c.Message)
		}
		// A daemon that isn't heard again is missed.
		time.Sleep(grace)
		for _, name := range vital[1:] {
			r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()}))
		}
		time.Sleep(90 * time.Second)
		for _, name := range vital[1:] {
			r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()}))
		}
		if after, _ = server.get(); readyOf(after) != corev1.ConditionFalse {
			t.Errorf("Ready is %s though %s is silent", readyOf(after), vital[0])
		}
	})
}

// A load balancer without an API server behind it may answer that there is no such Node. The Node goes on being
// reported.
func TestAReportThatFindsNoNodeIsTriedAgain(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		mislead := func(on bool) {
			server.mu.Lock()
			defer server.mu.Unlock()
			server.misled = on
		}
		mislead(true)
		down := *testRuntime()
		down.NetworkReady = topic.RuntimeCondition{Reason: "NetworkPluginNotReady"}
		r.must(r.runtime.Set("", down))
		time.Sleep(time.Minute)
		if node, _ := server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Fatal("the report was written")
		}
		mislead(false)
		time.Sleep(writeRetryMax)
		synctest.Wait()
		if node, _ := server.get(); readyOf(node) != corev1.ConditionFalse {
			t.Error("the Node isn't reported any more")
		}
	})
}

// The time of day is set back while a daemon becomes ill: it counts as ill from when it was heard.
func TestAClockThatIsSetBackHidesNoIllness(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		since := time.Now().Add(time.Hour) // by the clock before it was set
		for range 3 {
			r.must(r.health["pleg"].Set("pleg", topic.DaemonHealth{
				State: topic.Unhealthy, Message: "no answer", Beat: time.Now(), Since: since,
			}))
			time.Sleep(grace / 2)
		}
		synctest.Wait()
		if node, _ := server.get(); readyOf(node) != corev1.ConditionFalse {
			t.Errorf("Ready is %s though pleg has been ill for longer than %s", readyOf(node), grace)
		}
	})
}
