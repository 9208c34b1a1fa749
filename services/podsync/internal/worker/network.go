package worker

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/podsync/internal/plan"
)

// Reason and beginning of the Event of a pod that waits for the node's network, as the kubelet has them.
const (
	reasonNetworkNotReady  = "NetworkNotReady"
	messageNetworkNotReady = "network is not ready: "
)

// Wake has the worker look at the node's facts again.
func (w *Worker) Wake() { w.send(func(*Worker) {}) }

// lacksNetwork tells whether the action must wait for the node's network, and tells the user once of each reason why. A
// sandbox that is there has its network.
func (w *Worker) lacksNetwork(a plan.Action) bool {
	if a.Kind != plan.CreateSandbox || w.Pod.Spec.HostNetwork {
		return false
	}
	problem := w.Node.NetworkProblem()
	if problem != "" && problem != w.network {
		w.log.Warn("the pod waits for the node's network", "error", problem)
		w.report.Event(w.Pod, "", corev1.EventTypeWarning, reasonNetworkNotReady, messageNetworkNotReady+problem)
	}
	w.network = problem
	return problem != ""
}
