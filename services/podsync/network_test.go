package podsync

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		const want = "network is not ready: container runtime network not ready: NetworkReady=false " +
			"reason:NetworkPluginNotReady message:cni plugin not initialized"
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

// The agent of a network is a pod too, and often the youngest: those that wait for it, each try for a while, must leave
// it a turn.
func TestPodsThatWaitForTheNetworkLeaveItsAgentATurn(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.fake.On("RunPodSandbox", func(ctx context.Context, req any) error {
			took, err := 30*time.Second, errors.New("the network plug-in's agent doesn't answer")
			if req.(*runtimeapi.RunPodSandboxRequest).GetConfig().GetMetadata().GetName() == "agent" {
				took, err = time.Millisecond, nil
			}
			select {
			case <-time.After(took):
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		b.start(fromAPI)
		b.node(400)
		var pods []*corev1.Pod
		for i := range 20 * atOnce() {
			pods = append(pods, pod(fmt.Sprintf("web-%d", i), fmt.Sprintf("u%d", i)))
		}
		b.deliver(fromAPI, pods...)
		b.pass(2 * time.Minute)
		agent := pod("agent", "agent")
		agent.Spec.HostNetwork = true
		b.deliver(fromAPI, append(pods, agent)...)
		b.pass(10 * time.Second)
		b.wantRunning("agent")
	})
}
