package criconfig

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/node/util/sysctl"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/runtime/dns"
)

// Sandbox builds the configuration of a pod's sandbox. An error means that the spec can't be satisfied.
func Sandbox(node *Node, in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	pod := in.Pod
	linux, err := sandboxLinux(node, in)
	if err != nil {
		return nil, err
	}
	config := identity(pod)
	config.Metadata.Attempt = in.Attempt
	config.DnsConfig, config.LogDirectory, config.PortMappings = in.DNS, logDir(node, pod), portMappings(pod)
	config.Linux = linux
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = dns.KernelHostname(pod, node.ClusterDomain); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// ForPull is what a runtime is told of a pod whose images it pulls: there may be no sandbox yet. By these, containerd
// chooses the snapshotter of a runtime class, and CRI-O the signature policy of a namespace.
func ForPull(pod *corev1.Pod, cgroupParent string) *runtimeapi.PodSandboxConfig {
	config := identity(pod)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroupParent}
	return config
}

// identity says which pod it is.
func identity(pod *corev1.Pod) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Labels:      labels.Sandbox(pod),
		Annotations: maps.Clone(pod.Annotations),
	}
}

// logDir is the directory of the pod's logs; those of a container are in a directory of its name below.
func logDir(node *Node, pod *corev1.Pod) string {
	return filepath.Join(node.PodLogsDir, labels.LogDir(topic.RefOf(pod)))
}

func sandboxLinux(node *Node, in SandboxInput) (*runtimeapi.LinuxPodSandboxConfig, error) {
	pod := in.Pod
	security := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod, in.UserNamespace),
		Privileged:       anyPrivileged(&pod.Spec),
		// The sandbox's own process needs no more than this, whatever the containers ask for.
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	linux := &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent:    in.CgroupParent,
		SecurityContext: security,
		Sysctls:         map[string]string{},
	}
	linux.Overhead, linux.Resources = SandboxResources(node, pod, in.ExclusiveCPUs)
	sc := pod.Spec.SecurityContext
	if sc == nil {
		security.SupplementalGroups = append(security.SupplementalGroups, in.SupplementalGroups...)
		return linux, nil
	}
	for _, s := range sc.Sysctls {
		linux.Sysctls[sysctl.NormalizeName(s.Name)] = s.Value
	}
	security.RunAsUser = int64Value(sc.RunAsUser)
	security.RunAsGroup = int64Value(sc.RunAsGroup)
	security.SelinuxOptions = selinuxOptions(sc.SELinuxOptions)
	security.SupplementalGroups = supplementalGroups(sc, in.SupplementalGroups)
	policy, err := groupsPolicy(sc)
	security.SupplementalGroupsPolicy = policy
	return linux, err
}

// namespaces says which of the kernel's namespaces are the node's, the pod's or a container's own.
//
// Source: PodSpec.hostNetwork, hostPID, hostIPC, shareProcessNamespace.
func namespaces(pod *corev1.Pod, userNamespace *runtimeapi.UserNamespace) *runtimeapi.NamespaceOption {
	options := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: userNamespace}
	if pod.Spec.HostNetwork {
		options.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		options.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		options.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(pod.Spec.ShareProcessNamespace):
		options.Pid = runtimeapi.NamespaceMode_POD
	}
	return options
}

func anyPrivileged(spec *corev1.PodSpec) bool {
	for c := range podspec.Containers(spec) {
		if sc := c.SecurityContext; sc != nil && isTrue(sc.Privileged) {
			return true
		}
	}
	return false
}

// portMappings lists the ports of the containers that run as long as the pod: regular ones and sidecars.
func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	var mappings []*runtimeapi.PortMapping
	for i := range pod.Spec.InitContainers {
		if podspec.IsSidecar(&pod.Spec.InitContainers[i]) {
			mappings = append(mappings, containerPorts(pod.Spec.InitContainers[i].Ports)...)
		}
	}
	for i := range pod.Spec.Containers {
		mappings = append(mappings, containerPorts(pod.Spec.Containers[i].Ports)...)
	}
	return mappings
}

// containerPorts leaves out repeated ports. One port may occur once for each address family.
func containerPorts(ports []corev1.ContainerPort) []*runtimeapi.PortMapping {
	var mappings []*runtimeapi.PortMapping
	seen := map[string]bool{}
	for _, p := range ports {
		name := p.Name
		if name == "" {
			name = fmt.Sprintf("%s-%s-%s:%d:%d", family(p.HostIP), p.Protocol, p.HostIP, p.ContainerPort, p.HostPort)
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		mappings = append(mappings, &runtimeapi.PortMapping{
			Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
		})
	}
	return mappings
}

func family(ip string) string {
	addr, err := netip.ParseAddr(ip)
	switch {
	case err != nil:
		return "any"
	case addr.Unmap().Is6():
		return "v6"
	}
	return "v4"
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

// SandboxResources are those of the whole pod without its overhead, and the overhead, which is guaranteed to it:
// request and limit are equal. Runtimes that run pods as virtual machines size them by these.
func SandboxResources(node *Node, pod *corev1.Pod, exclusiveCPUs bool,
) (overhead, resources *runtimeapi.LinuxContainerResources) {
	options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options)
	resources = linuxResources(node, requests, limits)
	if exclusiveCPUs {
		unlimitCPU(node, resources)
	}
	if pod.Spec.Overhead == nil {
		return &runtimeapi.LinuxContainerResources{}, resources
	}
	return linuxResources(node, pod.Spec.Overhead, pod.Spec.Overhead), resources
}
