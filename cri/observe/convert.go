package observe

import (
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

func sandboxFromList(listed *runtimeapi.PodSandbox) topic.Sandbox {
	return topic.Sandbox{
		ID:             listed.GetId(),
		Attempt:        listed.GetMetadata().GetAttempt(),
		Ready:          listed.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:      moment(listed.GetCreatedAt()),
		RuntimeHandler: listed.GetRuntimeHandler(),
	}
}

func sandboxFromStatus(status *runtimeapi.PodSandboxStatus) topic.Sandbox {
	sandbox := topic.Sandbox{
		ID:             status.GetId(),
		Attempt:        status.GetMetadata().GetAttempt(),
		Ready:          status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt:      moment(status.GetCreatedAt()),
		HostNetwork:    status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
		RuntimeHandler: status.GetRuntimeHandler(),
	}
	if ip := status.GetNetwork().GetIp(); ip != "" && !sandbox.HostNetwork {
		sandbox.IPs = append(sandbox.IPs, ip)
		for _, additional := range status.GetNetwork().GetAdditionalIps() {
			sandbox.IPs = append(sandbox.IPs, additional.GetIp())
		}
	}
	return sandbox
}

// containerFromList is what the list says about a container that can't be inspected. How one has ended isn't known
// from there: it has the exit code and reason of the kubelet's for containers that are lost, and no FinishedAt.
func containerFromList(listed *runtimeapi.Container) topic.Container {
	container := topic.Container{
		ID:        listed.GetId(),
		SandboxID: listed.GetPodSandboxId(),
		Name:      name(listed.GetLabels(), listed.GetMetadata()),
		Attempt:   listed.GetMetadata().GetAttempt(),
		State:     stateOf(listed.GetState()),
		Image:     listed.GetImage().GetImage(),
		ImageID:   firstOf(listed.GetImageId(), listed.GetImageRef()),
		ImageRef:  listed.GetImageRef(),
		CreatedAt: moment(listed.GetCreatedAt()),
	}
	if container.State == topic.ContainerExited {
		container.ExitCode, container.Reason = 137, "ContainerStatusUnknown"
		container.Message = "The runtime doesn't report how the container ended"
	}
	annotate(&container, listed.GetAnnotations())
	return container
}

func containerFromStatus(status *runtimeapi.ContainerStatus, sandboxID string) topic.Container {
	container := topic.Container{
		ID:         status.GetId(),
		SandboxID:  sandboxID,
		Name:       name(status.GetLabels(), status.GetMetadata()),
		Attempt:    status.GetMetadata().GetAttempt(),
		State:      stateOf(status.GetState()),
		Image:      status.GetImage().GetImage(),
		ImageID:    firstOf(status.GetImageId(), status.GetImageRef()),
		ImageRef:   status.GetImageRef(),
		CreatedAt:  moment(status.GetCreatedAt()),
		StartedAt:  moment(status.GetStartedAt()),
		FinishedAt: moment(status.GetFinishedAt()),
		ExitCode:   status.GetExitCode(),
		Reason:     status.GetReason(),
		Message:    status.GetMessage(),
		LogPath:    status.GetLogPath(),
		User:       user(status.GetUser()),
		Resources:  resources(status.GetResources().GetLinux()),
		StopSignal: signal(status.GetStopSignal()),
	}
	annotate(&container, status.GetAnnotations())
	for _, mount := range status.GetMounts() {
		if path := container.TerminationMessagePath; path != "" && mount.GetContainerPath() == path {
			container.TerminationMessageFile = mount.GetHostPath()
		}
	}
	return container
}

// annotate fills in what the kubelet's annotations tell. Malformed ones count as missing: the observation
// states what is there, and a container without a hash is simply not one that can be compared.
func annotate(container *topic.Container, annotations map[string]string) {
	info, _ := labels.Parse(annotations)
	container.Hash = info.Hash
	container.RestartCount = info.RestartCount
	container.TerminationMessagePath = info.TerminationMessagePath
	container.TerminationMessagePolicy = string(info.TerminationMessagePolicy)
}

func name(all map[string]string, meta *runtimeapi.ContainerMetadata) string {
	return firstOf(all[labels.ContainerName], meta.GetName())
}

func stateOf(state runtimeapi.ContainerState) topic.ContainerState {
	switch state {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return topic.ContainerCreated
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return topic.ContainerRunning
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return topic.ContainerExited
	default:
		return topic.ContainerUnknown
	}
}

// moment converts the CRI's nanoseconds; zero stays zero. UTC, so that equal moments are equal values.
func moment(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds).UTC()
}

func user(u *runtimeapi.ContainerUser) *corev1.ContainerUser {
	linux := u.GetLinux()
	if linux == nil {
		return nil
	}
	return &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{
		UID: linux.GetUid(), GID: linux.GetGid(), SupplementalGroups: linux.GetSupplementalGroups(),
	}}
}

// resources translates cgroup values back to API resources: cpu.shares to the CPU request, quota and period
// to the CPU limit. Unset values stay unset; the kernel's least shares (2) read as 2 m.
func resources(linux *runtimeapi.LinuxContainerResources) *corev1.ResourceRequirements {
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{}
	if shares := linux.GetCpuShares(); shares > 0 {
		requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(math.Ceil(float64(shares)*1000/1024)),
			resource.DecimalSI)
	}
	if quota, period := linux.GetCpuQuota(), linux.GetCpuPeriod(); quota > 0 && period > 0 {
		limits[corev1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if memory := linux.GetMemoryLimitInBytes(); memory > 0 {
		limits[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if len(limits) == 0 && len(requests) == 0 {
		return nil
	}
	return &corev1.ResourceRequirements{Limits: limits, Requests: requests}
}

// signal is the API's name of a stop signal, such as SIGTERM or SIGRTMIN+3; empty where the runtime doesn't tell.
func signal(s runtimeapi.Signal) string {
	if s == runtimeapi.Signal_RUNTIME_DEFAULT {
		return ""
	}
	return strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(s.String())
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
