package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// slot names a probe within its pod.
type slot struct{ container, kind string }

// key is the slot's key of probe.result.
func (s slot) key(uid string) string {
	return topic.ProbeKey{UID: uid, Container: s.container, Kind: s.kind}.String()
}

var kinds = []string{topic.ProbeStartup, topic.ProbeLiveness, topic.ProbeReadiness}

func specOf(c *corev1.Container, kind string) *corev1.Probe {
	switch kind {
	case topic.ProbeStartup:
		return c.StartupProbe
	case topic.ProbeLiveness:
		return c.LivenessProbe
	default:
		return c.ReadinessProbe
	}
}

// target is a probe of a container as it runs.
type target struct {
	slot
	spec          *corev1.Probe
	containerSpec *corev1.Container
	// fieldPath is where Events point to.
	fieldPath string
	id        string
	started   time.Time
	// podIP is the pod's address; empty where it isn't known.
	podIP string
}

// exec reports whether the probe is a command.
func (t target) exec() bool { return t.spec.Exec != nil }

// reachable reports whether it is known where to connect to.
func (t target) reachable() bool {
	switch s := t.spec; {
	case s.HTTPGet != nil:
		return s.HTTPGet.Host != "" || t.podIP != ""
	case s.TCPSocket != nil:
		return s.TCPSocket.Host != "" || t.podIP != ""
	case s.GRPC != nil:
		return t.podIP != ""
	default:
		return true
	}
}

// targets are the probes of all containers that run: main containers and sidecars.
func targets(pod *corev1.Pod, seen topic.PodObservation, nodeIP string) []target {
	var all []target
	add := func(c *corev1.Container, path string) {
		running := newest(seen, c.Name)
		if running == nil || running.State != topic.ContainerRunning {
			return
		}
		for _, kind := range kinds {
			if spec := specOf(c, kind); spec != nil {
				all = append(all, target{
					slot: slot{c.Name, kind}, spec: spec, containerSpec: c, fieldPath: path + "{" + c.Name + "}",
					id: running.ID, started: running.StartedAt, podIP: address(pod, seen, running.SandboxID, nodeIP),
				})
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; podspec.IsSidecar(c) {
			add(c, "spec.initContainers")
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i], "spec.containers")
	}
	return all
}

// newest is the newest container of that name, or nil: an observation lists them newest first.
func newest(seen topic.PodObservation, name string) *topic.Container {
	for i := range seen.Containers {
		if seen.Containers[i].Name == name {
			return &seen.Containers[i]
		}
	}
	return nil
}

func address(pod *corev1.Pod, seen topic.PodObservation, sandboxID, nodeIP string) string {
	if pod.Spec.HostNetwork {
		return nodeIP
	}
	for i := range seen.Sandboxes {
		if s := &seen.Sandboxes[i]; s.ID == sandboxID {
			// The first is podIP in the pod's status, whichever the runtime names first.
			if ips := podspec.OrderIPs(s.IPs, []string{nodeIP}); len(ips) > 0 {
				return ips[0]
			}
		}
	}
	return ""
}
