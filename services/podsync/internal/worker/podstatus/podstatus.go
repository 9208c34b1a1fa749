// Package podstatus computes a pod's status from its spec, the runtime's report and what the
// worker waits for. Readiness, the started flag and the conditions that follow from them are
// the status daemon's, which has the probe results.
package podstatus

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// Input is everything a status is made from.
type Input struct {
	Pod *corev1.Pod
	Obs topic.PodObservation
	// Waiting are the plan's reasons, by container name.
	Waiting map[string]plan.Waiting
	// Busy are containers that are being started or whose postStart hook runs: others see them as not yet running.
	Busy map[string]bool
	// Messages are termination messages by container ID.
	Messages map[string]string
	// Previous is the last status of this pod, of the API server or of this worker.
	Previous corev1.PodStatus
	// Ending is true once the pod is being stopped; Ended once nothing runs and nothing will.
	Ending bool
	Ended  bool
	// Rejected is true for a pod that failed admission: it never had containers.
	Rejected bool
	// Reason and Message are the pod's own, such as Evicted or DeadlineExceeded; Fail forces the phase Failed.
	Fail    bool
	Reason  string
	Message string
	// Before are the resources that running containers have still, by ID, while a resize isn't done.
	Before map[string]corev1.ResourceRequirements
	// Cgroup is the CPU and memory of the pod's cgroup; nil where the spec's must be stated.
	Cgroup *corev1.ResourceRequirements
	// Allocation is what the pod has for itself. AllocationUnknown is true as long as that isn't known.
	Allocation        topic.Allocation
	AllocationUnknown bool
	// Conditions are extra conditions, such as DisruptionTarget.
	Conditions []corev1.PodCondition
	Node       Node
	// StartTime is when the node took the pod on.
	StartTime time.Time
	QOS       corev1.PodQOSClass
}

// Node is what the status says of the node.
type Node struct {
	// HostIPs are its addresses, primary first.
	HostIPs []string
	// RuntimeName is the prefix of container IDs, such as containerd.
	RuntimeName string
	// RecursiveReadOnly is true where the pod's runtime handler can mount read-only recursively.
	RecursiveReadOnly bool
}

// Compute makes the status. It doesn't change its argument.
func Compute(in Input) corev1.PodStatus {
	in.Obs = plan.WithoutInterrupted(in.Obs)
	status := corev1.PodStatus{
		ObservedGeneration: in.Pod.Generation,
		StartTime:          &metav1.Time{Time: in.StartTime.Truncate(time.Second)},
		QOSClass:           in.QOS,
		Reason:             in.Reason,
		Message:            in.Message,
		Resize:             in.Previous.Resize,
	}
	addresses(&status, in)
	if !rejected(in) {
		status.InitContainerStatuses = containerStatuses(in, in.Pod.Spec.InitContainers, in.Previous.InitContainerStatuses)
		status.ContainerStatuses = containerStatuses(in, in.Pod.Spec.Containers, in.Previous.ContainerStatuses)
		setDevices(status.ContainerStatuses, in)
		status.EphemeralContainerStatuses = containerStatuses(in, ephemeral(in.Pod), in.Previous.EphemeralContainerStatuses)
	}
	if in.Ended {
		lost(in, &status)
	}
	status.Phase = phase(in, &status)
	if !rejected(in) {
		podResources(&status, in)
	}
	status.Conditions = append(status.Conditions, sandboxCondition(in))
	status.Conditions = append(status.Conditions, in.Conditions...)
	return status
}

// rejected reports whether the pod failed admission, now or before a restart of this daemon.
func rejected(in Input) bool {
	was := in.Previous.Phase == corev1.PodFailed && len(in.Previous.ContainerStatuses) == 0
	return len(in.Obs.Sandboxes) == 0 && (in.Rejected || was)
}

func ephemeral(pod *corev1.Pod) []corev1.Container {
	containers := make([]corev1.Container, 0, len(pod.Spec.EphemeralContainers))
	for i := range pod.Spec.EphemeralContainers {
		containers = append(containers, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return containers
}

// addresses sets the host's and the pod's addresses. A pod keeps its addresses after its sandbox has stopped.
func addresses(status *corev1.PodStatus, in Input) {
	for _, ip := range in.Node.HostIPs {
		status.HostIPs = append(status.HostIPs, corev1.HostIP{IP: ip})
	}
	if len(in.Node.HostIPs) > 0 {
		status.HostIP = in.Node.HostIPs[0]
	}
	var ips []string
	switch {
	case in.Pod.Spec.HostNetwork:
		if len(in.Obs.Sandboxes) > 0 || len(in.Previous.PodIPs) > 0 {
			ips = in.Node.HostIPs
		}
	case len(in.Obs.Sandboxes) > 0 && len(in.Obs.Sandboxes[0].IPs) > 0:
		ips = podspec.OrderIPs(in.Obs.Sandboxes[0].IPs, in.Node.HostIPs)
	case in.Ending:
		for _, ip := range in.Previous.PodIPs {
			ips = append(ips, ip.IP)
		}
	}
	for _, ip := range ips {
		status.PodIPs = append(status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		status.PodIP = ips[0]
	}
}

// sandboxCondition is PodReadyToStartContainers (KEP-3085): the sandbox is there and has its network.
func sandboxCondition(in Input) corev1.PodCondition {
	condition := corev1.PodCondition{
		Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse,
		ObservedGeneration: in.Pod.Generation,
	}
	if plan.Current(in.Pod, in.Obs) != nil {
		condition.Status = corev1.ConditionTrue
	}
	return condition
}
