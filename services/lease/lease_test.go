package lease

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

func TestTheNodeIsRegisteredAndReadyAtOnce(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		began := time.Now()
		if node, _ := server.get(); node != nil {
			t.Error("registered without knowing the machine")
		}
		r.must(r.machine.Set("", *testMachine()))
		node, _ := server.get()
		if node == nil || readyOf(node) != corev1.ConditionFalse {
			t.Fatalf("after the machine is known the Node is %v", node)
		}
		if got := r.published(); got.UID != node.UID {
			t.Errorf("node.object has the UID %q, want %q", got.UID, node.UID)
		}
		r.must(r.runtime.Set("", *testRuntime()))
		r.beats()
		if node, _ = server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Errorf("Ready is %+v", condition(node.Status.Conditions, corev1.NodeReady))
		}
		if time.Since(began) != 0 {
			t.Errorf("it took %s; events should suffice", time.Since(began))
		}
		if got := r.events.take(); !slices.Contains(got, "NodeReady") || !slices.Contains(got, "Starting") {
			t.Errorf("Events %v", got)
		}
	})
}

// The node took a minute to boot, and this daemon two seconds to hear of the machine and three more to be ready.
func TestHowLongTheNodeTookToComeUp(t *testing.T) {
	run(t, &server{}, func(r *rig) {
		defer r.start()()
		time.Sleep(2 * time.Second)
		r.must(r.machine.Set("", *testMachine()))
		time.Sleep(3 * time.Second)
		r.must(r.runtime.Set("", *testRuntime()))
		r.beats()
		want := map[string]float64{
			"kubelet_node_name": 1, "kubelet_node_startup_pre_kubelet_duration_seconds": 60,
			"kubelet_node_startup_pre_registration_duration_seconds":  2,
			"kubelet_node_startup_registration_duration_seconds":      0,
			"kubelet_node_startup_post_registration_duration_seconds": 3,
			"kubelet_node_startup_duration_seconds":                   65,
		}
		families, err := r.registry.Gather()
		r.must(err)
		for _, f := range families {
			if value, known := want[f.GetName()]; known && f.GetMetric()[0].GetGauge().GetValue() != value {
				t.Errorf("%s is %v, want %v", f.GetName(), f.GetMetric()[0].GetGauge().GetValue(), value)
			}
			delete(want, f.GetName())
		}
		for name := range want {
			t.Errorf("there is no %s", name)
		}
	})
}

func TestStatusIsReportedEachFiveMinutesWithoutAChange(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		for range 40 { // 20 minutes
			r.beats()
			time.Sleep(30 * time.Second)
		}
		time.Sleep(15 * time.Second) // clear of the moment of a report
		_, writes := server.get()
		for range 40 {
			r.beats()
			time.Sleep(30 * time.Second)
		}
		if _, after := server.get(); after-writes != 4 {
			t.Errorf("%d reports in 20 minutes, want 4", after-writes)
		}
	})
}

func TestADaemonsRestartDoesNotTurnReady(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		r.must(r.health["podsync"].Set("podsync", topic.DaemonHealth{
			State: topic.Stopped, Since: time.Now(),
			Beat: time.Now(),
		}))
		time.Sleep(25 * time.Second)
		if node, _ := server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Error("not Ready during a restart")
		}
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if node, _ := server.get(); readyOf(node) != corev1.ConditionFalse {
			t.Error("still Ready 40 s after podsync was stopped")
		}
		if got := r.events.take(); !slices.Contains(got, "NodeNotReady") {
			t.Errorf("Events %v", got)
		}
	})
}

// Pods with claims wait for the resource daemon as soon as a driver has registered; a CSI driver needs it for nothing.
func TestADRADriverNeedsTheResourceDaemon(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		ready := func(kind topic.PluginType) corev1.ConditionStatus {
			r.must(r.plugins.Set(topic.PluginKey(kind, "x.test"), topic.Plugin{
				Type: kind, Name: "x.test", PluginEndpoint: topic.PluginEndpoint{
					Endpoint: "/x.sock", Socket: "/x-reg.sock", Instance: "1", Versions: []string{"v1"},
				},
			}))
			time.Sleep(grace + time.Second)
			r.beats()
			time.Sleep(time.Second)
			synctest.Wait()
			node, _ := server.get()
			return readyOf(node)
		}
		if got := ready(topic.CSIPlugin); got != corev1.ConditionTrue {
			t.Errorf("with a CSI driver the node's Ready is %s", got)
		}
		if got := ready(topic.DRAPlugin); got != corev1.ConditionFalse {
			t.Errorf("with a DRA driver and nobody to call it the node's Ready is %s", got)
		}
	})
}

// The time of day is set back while the daemons go on beating.
func TestAClockThatIsSetBackDoesNotTurnReady(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		for range 10 {
			time.Sleep(30 * time.Second)
			for _, name := range vital {
				r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now().Add(-time.Hour)}))
			}
			if node, _ := server.get(); readyOf(node) != corev1.ConditionTrue {
				t.Fatal("not Ready")
			}
		}
	})
}

func TestALostBusDoesNotTurnReady(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		stop := r.start()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		r.bus.Disconnect()
		time.Sleep(time.Hour)
		if node, _ := server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Error("not Ready without the bus")
		}
		stop()
		stop = r.start()
		time.Sleep(time.Hour)
		if node, _ := server.get(); readyOf(node) != corev1.ConditionTrue {
			t.Error("not Ready after a restart without the bus")
		}
		stop()
	})
}

func TestAnExistingNodeIsAdopted(t *testing.T) {
	old := build(testConfig(), goodFacts(), nil)
	old.UID, old.Labels["team"], old.Status.NodeInfo.BootID = "uid-0", "green", "boot-0"
	server := &server{node: old}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		time.Sleep(time.Minute)
		node, _ := server.get()
		if node.UID != "uid-0" || node.Labels["team"] != "green" || node.Status.NodeInfo.BootID != "boot-1" {
			t.Errorf("Node %+v", node.ObjectMeta)
		}
		if got := r.events.take(); !slices.Contains(got, "Rebooted") {
			t.Errorf("Events %v, want Rebooted", got)
		}
	})
}

func TestRegistrationIsTriedUntilTheAPIServerAnswers(t *testing.T) {
	server := &server{down: true}
	run(t, server, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()))
		time.Sleep(time.Hour)
		if got := r.published(); got.UID != "" || got.Name != "n1" {
			t.Errorf("node.object before the registration: %q %q", got.Name, got.UID)
		}
		server.setDown(false)
		time.Sleep(writeRetryMax)
		synctest.Wait()
		if node, _ := server.get(); node == nil {
			t.Error("not registered after the outage")
		}
	})
}

// Pods are judged by node.object: a Node that lacks what an administrator has put on it fails them for good.
func TestAdoptionNeverShowsAnotherNode(t *testing.T) {
	labelled := build(testConfig(), goodFacts(), nil)
	labelled.UID, labelled.Labels["team"] = "uid-0", "green"
	for name, down := range map[string]time.Duration{"the API server answers": 0, "the API server is away": time.Hour} {
		t.Run(name, func(t *testing.T) {
			server := &server{node: labelled.DeepCopy()}
			run(t, server, func(r *rig) {
				r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
				r.start()()
				if got := r.published(); got.Labels["team"] != "green" {
					t.Fatalf("node.object before the restart: %+v", got.ObjectMeta)
				}
				conn := r.bus.Conn("podsync")
				seen, err := topic.NodeObject.Watch(r.t.Context(), conn)
				r.must(err)
				ended := make(chan int)
				go func() {
					values := 0
					for c := range seen {
						if !c.Synced && (c.Deleted || c.Value.UID != "uid-0" || c.Value.Labels["team"] != "green") {
							t.Errorf("node.object was %+v", c.Value.ObjectMeta)
						}
						values++
					}
					ended <- values
				}()
				server.setDown(down > 0)
				stop := r.start()
				time.Sleep(down)
				server.setDown(false)
				time.Sleep(time.Minute)
				stop()
				conn.Close()
				if values := <-ended; values < 3 {
					t.Errorf("%d changes of node.object, want the retained one, the mark after it and the adopted one", values)
				}
			})
		})
	}
}

func TestANodeThatIsGoneIsNotKept(t *testing.T) {
	server := &server{node: build(testConfig(), goodFacts(), nil)}
	server.node.UID = "uid-0"
	run(t, server, func(r *rig) {
		r.must(r.machine.Set("", *testMachine()))
		r.start()()
		server.mu.Lock()
		server.node = nil
		server.mu.Unlock()
		defer r.start()()
		if got := r.published(); got.UID != "uid-1" {
			t.Errorf("node.object has the UID %q, want that of the new Node", got.UID)
		}
	})
}

func TestStandaloneSpeaksOfTheNodeOnTheBusOnly(t *testing.T) {
	run(t, nil, func(r *rig) {
		defer r.start()()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		n := r.published()
		if n.UID != "" || readyOf(&n) != corev1.ConditionTrue || n.Status.Addresses[0].Address != "10.0.0.5" {
			t.Errorf("node.object %+v", n.Status)
		}
	})
}
