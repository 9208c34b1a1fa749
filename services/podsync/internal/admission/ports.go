package admission

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// anyIP is the host IP of a port that is bound on all of them.
const anyIP = "0.0.0.0"

// hostPort is a port of the machine.
type hostPort struct {
	protocol corev1.Protocol
	port     int32
}

// portsTaken reports whether one of the pod's host ports is another pod's.
func portsTaken(pod *corev1.Pod, others []Held) bool {
	mine := hostPorts(pod)
	if len(mine) == 0 {
		return false
	}
	for _, other := range others {
		for p, ips := range other.ports {
			if overlap(mine[p], ips) {
				return true
			}
		}
	}
	return false
}

func overlap(a, b []string) bool {
	for _, x := range a {
		for _, y := range b {
			if x == y || x == anyIP || y == anyIP {
				return true
			}
		}
	}
	return false
}

// hostPorts are the pod's host ports with the IPs they are bound on, while it runs: those of init containers that
// end before the others begin don't count.
func hostPorts(pod *corev1.Pod) map[hostPort][]string {
	var ports map[hostPort][]string
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			k, ip := hostPort{p.Protocol, p.HostPort}, p.HostIP
			if k.protocol == "" {
				k.protocol = corev1.ProtocolTCP
			}
			if ip == "" {
				ip = anyIP
			}
			if ports == nil {
				ports = map[hostPort][]string{}
			}
			ports[k] = append(ports[k], ip)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			add(c)
		}
	}
	return ports
}
