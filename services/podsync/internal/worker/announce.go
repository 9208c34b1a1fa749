package worker

import (
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// Reason and beginning of the Event of a pod that waits for the node's network, as the kubelet has them.
const (
	reasonNetworkNotReady  = "NetworkNotReady"
	messageNetworkNotReady = "network is not ready: "
)

// announcer records Events of what a pod waits for, each when the wait begins.
type announcer struct {
	state   *state
	report  Reporter
	log     *slog.Logger
	network string // why the pod waits for the node's network
}

// awaitNetwork records why the pod waits for the node's network; an empty problem means that it doesn't.
func (a *announcer) awaitNetwork(problem string) {
	if problem != "" && problem != a.network {
		a.log.Warn("the pod waits for the node's network", "error", problem)
		a.report.Event(a.state.Pod, "", corev1.EventTypeWarning, reasonNetworkNotReady, messageNetworkNotReady+problem)
	}
	a.network = problem
}

// awaitBackoff records Events about the containers whose crash back-off has begun.
func (a *announcer) awaitBackoff(p plan.Plan) {
	for name, waiting := range p.Waiting {
		c := a.state.containers.of(name)
		if waiting.Reason == plan.ReasonCrashLoopBackOff && !c.announced {
			a.report.Event(a.state.Pod, events.FieldPath(a.state.Pod, name), corev1.EventTypeWarning, "BackOff",
				fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", name, a.state.Pod.Name,
					a.state.Pod.Namespace, a.state.Pod.UID))
		}
		c.announced = waiting.Reason == plan.ReasonCrashLoopBackOff
	}
}

// needsNetwork reports whether the action makes a network for the pod.
func needsNetwork(pod *corev1.Pod, a plan.Action) bool {
	return a.Kind == plan.CreateSandbox && !pod.Spec.HostNetwork
}
