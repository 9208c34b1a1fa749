package criconfig

import (
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"kubelot.dev/cri/expand"
	"kubelot.dev/cri/labels"
	"kubelot.dev/services/podsync/internal/runtime/env"
)

// Container builds the configuration of a container. An error's text is the container's waiting message.
func Container(node *Node, in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	security, err := containerSecurity(node, in)
	if err != nil {
		return nil, err
	}
	mounted, err := mounts(node, in)
	if err != nil {
		return nil, err
	}
	devices, err := devices(in)
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(c)
	if err != nil {
		return nil, err
	}
	lookup := env.Lookup(in.Env)
	resources := resourcesOf(node, in.Pod, c, in.Alone.CPUs != "")
	resources.CpusetCpus, resources.CpusetMems = CPUs(in.Alone, in.SharedCPUs), in.Alone.MemoryNodes
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.RestartCount)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command, lookup),
		Args:        expandAll(c.Args, lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        in.Env,
		Mounts:      mounted,
		Devices:     devices,
		CDIDevices:  cdiDevices(in.Alone),
		Labels:      labels.Container(in.Pod, c.Name),
		Annotations: labels.ContainerAnnotations(in.Pod, c, in.RestartCount, in.Alone.Annotations),
		LogPath:     logPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       resources,
			SecurityContext: security,
		},
	}, nil
}

// logPath is where a container's log is below its pod's logDir.
func logPath(container string, restartCount int) string {
	return filepath.Join(container, fmt.Sprintf("%d.log", restartCount))
}

func expandAll(words []string, lookup func(string) (string, bool)) []string {
	var out []string
	for _, w := range words {
		out = append(out, expand.References(w, lookup))
	}
	return out
}

// stopSignal translates Lifecycle.stopSignal (KEP-4960); without one the image's counts.
func stopSignal(c *corev1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	// CRI spells SIGRTMIN+1 as SIGRTMINPLUS1.
	signal, ok := runtimeapi.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok {
		return 0, fmt.Errorf("unknown stop signal %q of container %s", name, c.Name)
	}
	return runtimeapi.Signal(signal), nil
}
