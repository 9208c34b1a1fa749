package podsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// containerd makes its CNI configuration of the node's ranges of addresses if it has a template of one. Without them
// the node would have no network.
func TestTheRuntimeIsToldThePodCIDRs(t *testing.T) {
	inBubble(t, func(b *bed) {
		var told []string
		answer := errors.New("the template is missing")
		b.fake.On("UpdateRuntimeConfig", func(_ context.Context, req any) error {
			config := req.(*runtimeapi.UpdateRuntimeConfigRequest).GetRuntimeConfig()
			told = append(told, config.GetNetworkConfig().GetPodCidr())
			return answer
		})
		b.start(fromAPI)
		version := 0
		state := func(want []string, cidrs ...string) {
			t.Helper()
			version++
			set(b, topic.NodeObject, "", corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-1", ResourceVersion: fmt.Sprint(version)},
				Spec:       corev1.NodeSpec{PodCIDRs: cidrs},
			})
			if !slices.Equal(told, want) {
				t.Errorf("the runtime was told %q, want %q", told, want)
			}
		}
		const both = "10.2.0.0/24,fd00:2::/64"
		state(nil)
		state([]string{both}, "10.2.0.0/24", "fd00:2::/64")
		answer = nil
		state([]string{both, both}, "10.2.0.0/24", "fd00:2::/64")
		state([]string{both, both}, "10.2.0.0/24", "fd00:2::/64")
		state([]string{both, both, "10.3.0.0/24"}, "10.3.0.0/24")
	})
}

// Runtimes have snapshotters by runtime class, and policies by namespace.
func TestTheRuntimeIsToldWhoseImageItPulls(t *testing.T) {
	inBubble(t, func(b *bed) {
		var told *runtimeapi.PodSandboxConfig
		b.fake.On("PullImage", func(_ context.Context, req any) error {
			told = req.(*runtimeapi.PullImageRequest).GetSandboxConfig()
			return nil
		})
		b.start(fromAPI)
		b.node(110)
		p := pod("web", "u1")
		p.Annotations = map[string]string{"io.containerd.cri.runtime-handler": "kata"}
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = "web:1", corev1.PullAlways
		b.deliver(fromAPI, p)
		b.wantRunning("web")
		if of := told.GetMetadata(); of.GetNamespace() != p.Namespace || of.GetUid() != "u1" ||
			told.GetAnnotations()["io.containerd.cri.runtime-handler"] != "kata" {
			t.Errorf("told %v", told)
		}
	})
}
