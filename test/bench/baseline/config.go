package baseline

import (
	"fmt"
	"os"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The calls carry what the kubelet (1.36) puts into them for a best-effort pod with one container and the default
// service account, since the runtime pays for it: each mount and masked path is work in the container's init, and so
// is the sandbox's seccomp filter. Compare with the configs under services/podsync/internal/runtime/criconfig/testdata.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
	serviceEnv    = []string{
		"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "KUBERNETES_SERVICE_PORT_HTTPS", "KUBERNETES_PORT",
		"KUBERNETES_PORT_443_TCP", "KUBERNETES_PORT_443_TCP_PROTO", "KUBERNETES_PORT_443_TCP_PORT",
		"KUBERNETES_PORT_443_TCP_ADDR",
	}
)

// podFiles are the files of a pod on the node.
type podFiles struct{ logs, hosts, termination, token string }

// files makes what the container mounts. The token's directory is a plain one: to fill it is the agent's work,
// not the runtime's.
func (c *Client) files(name string) (podFiles, error) {
	dir := filepath.Join(c.opts.LogDir, name)
	f := podFiles{
		logs: filepath.Join(dir, "logs"), hosts: filepath.Join(dir, "hosts"),
		termination: filepath.Join(dir, "termination"), token: filepath.Join(dir, "token"),
	}
	for _, d := range []string{filepath.Join(f.logs, "main"), f.token} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return f, fmt.Errorf("directory of pod %s: %w", name, err)
		}
	}
	for _, file := range []string{f.hosts, f.termination, filepath.Join(f.token, "token")} {
		if err := os.WriteFile(file, []byte("127.0.0.1 localhost\n"), 0o644); err != nil {
			return f, fmt.Errorf("file of pod %s: %w", name, err)
		}
	}
	return f, nil
}

func podLabels(name string) map[string]string {
	return map[string]string{
		"io.kubernetes.pod.name": name, "io.kubernetes.pod.namespace": "baseline",
		"io.kubernetes.pod.uid": "baseline-" + name,
	}
}

// sandbox is the config of an ordinary pod: networking, DNS, a cgroup of its own.
func (c *Client) sandbox(name string, files podFiles) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: "baseline-" + name, Namespace: "baseline"},
		Hostname:     name,
		LogDirectory: files.logs,
		DnsConfig: &runtimeapi.DNSConfig{
			Servers: []string{"10.96.0.10"}, Searches: []string{"cluster.local"},
			Options: []string{"ndots:5"},
		},
		Labels: podLabels(name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: filepath.Join(c.opts.CgroupParent, "pod-"+name),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

func (c *Client) container(name string, files podFiles) *runtimeapi.ContainerConfig {
	labels := podLabels(name)
	labels["io.kubernetes.container.name"] = "main"
	var env []*runtimeapi.KeyValue
	for _, key := range serviceEnv {
		env = append(env, &runtimeapi.KeyValue{Key: key, Value: []byte("10.96.0.1")})
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: c.opts.Image},
		Envs:     env,
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: files.token, Readonly: true},
			{ContainerPath: "/etc/hosts", HostPath: files.hosts},
			{ContainerPath: "/dev/termination-log", HostPath: files.termination},
		},
		Labels:  labels,
		LogPath: "main/0.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuShares: 2, OomScoreAdj: 1000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				MaskedPaths:      maskedPaths, ReadonlyPaths: readonlyPaths,
				Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
			},
		},
	}
}
