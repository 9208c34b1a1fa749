package podsync

import (
	"testing"
	"time"

	"kubelot.dev/bus/topic"
)

func TestPodsWaitForTheNetwork(t *testing.T) {
	inBubble(t, func(b *bed) {
		state := topic.Runtime{
			Name: "containerd", Reachable: true, RuntimeReady: topic.RuntimeCondition{Status: true},
			NetworkReady: topic.RuntimeCondition{Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		}
		b.start(fromAPI)
		b.node(110)
		set(b, topic.NodeRuntime, "", state)
		host := pod("host", "u2")
		host.Spec.HostNetwork = true
		b.deliver(fromAPI, pod("web", "u1"), host)
		b.pass(time.Minute)
		b.wantRunning("host")
		if n := b.fake.Calls("RunPodSandbox"); n != 1 {
			t.Errorf("%d sandboxes were tried, want that of the pod on the host's network", n)
		}
		const want = "network is not ready: container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
		if e := b.event("NetworkNotReady"); e.Message != want || e.UID != "u1" || e.Type != "Warning" {
			t.Errorf("Event %+v", e)
		}
		if e := b.event("FailedCreatePodSandBox"); e.Reason != "" {
			t.Errorf("Event %+v, want none", e)
		}
		state.NetworkReady = topic.RuntimeCondition{Status: true}
		set(b, topic.NodeRuntime, "", state)
		b.wantRunning("host", "web")

		// A network that goes away again takes nothing from a pod that has its own.
		state.NetworkReady = topic.RuntimeCondition{Reason: "NetworkPluginNotReady"}
		set(b, topic.NodeRuntime, "", state)
		b.pass(time.Minute)
		b.wantRunning("host", "web")
	})
}
