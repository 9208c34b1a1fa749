package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/node/orphans"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/dns"
	"kubelot.dev/services/podsync/internal/runtime/env"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// builder makes the configurations of sandboxes and containers, and the files that these mount.
type builder struct {
	node    Node
	sources env.Sources
	pods    Pods
	// hosts is held while a hosts file is written: containers of one pod may start at once.
	hosts sync.Mutex
}

// sandboxConfig is what a sandbox is created with, and what the user must know of its DNS settings.
func (b *builder) sandbox(s worker.Snapshot, attempt uint32) (*runtimeapi.PodSandboxConfig, []dns.Warning, error) {
	resolver, err := b.node.DNS()
	if err != nil {
		return nil, nil, err
	}
	dnsConfig, warnings := dns.ForPod(resolver, s.Pod)
	userNS, err := b.pods.UserNS.For(s.Pod)
	if err != nil {
		return nil, nil, err
	}
	config, err := criconfig.Sandbox(b.node.CRI(), criconfig.SandboxInput{
		Pod: s.Pod, Attempt: attempt, DNS: dnsConfig, CgroupParent: b.pods.Cgroups.Parent(s.Pod), UserNamespace: userNS,
		SupplementalGroups: groups(s), ExclusiveCPUs: exclusiveCPUs(s),
	})
	return config, warnings, err
}

// exclusiveCPUs reports whether a container of the pod has CPUs of its own.
func exclusiveCPUs(s worker.Snapshot) bool {
	for _, c := range s.Allocation.Containers {
		if c.CPUs != "" {
			return true
		}
	}
	return false
}

// groups are the supplemental groups that the pod's volumes ask for.
func groups(s worker.Snapshot) []int64 {
	var gids []int64
	for i := range s.Pod.Spec.Volumes {
		if gid := s.Volumes.Volumes[s.Pod.Spec.Volumes[i].Name].SupplementalGroup; gid != nil {
			gids = append(gids, *gid)
		}
	}
	return gids
}

// prepare builds a container's configuration and the files it mounts.
func (b *builder) container(ctx context.Context, s worker.Snapshot, c *corev1.Container,
	action plan.Action,
) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	in := criconfig.ContainerInput{
		Pod: s.Pod, Container: c, ImageRef: s.Images.Ref, ImageUser: criconfig.ImageUser{
			UID:      s.Images.UID,
			Username: s.Images.Username,
		}, ImageVolumes: s.Images.Volumes,
		Volumes: s.Volumes.Volumes, SupplementalGroups: groups(s), TargetID: target(s, c.Name),
		Alone: s.Allocation.Containers[c.Name], SharedCPUs: b.node.SharedCPUs(),
	}
	logDir := b.logDir(s.Pod)
	in.RestartCount = restartCount(s.Obs, logDir, c.Name, action)
	var err error
	if in.Env, err = b.env(ctx, s, c); err != nil {
		return nil, nil, err
	}
	if in.SubPaths, err = b.subPaths(ctx, s, in); err != nil {
		return nil, nil, err
	}
	if in.Alone.PreStart {
		if _, err := b.pods.PreStart(ctx, topic.PreStartRequest{Ref: topic.RefOf(s.Pod), Container: c.Name}); err != nil {
			return nil, nil, fmt.Errorf("make the devices of container %q ready: %w", c.Name, err)
		}
	}
	if in.UserNamespace, err = b.pods.UserNS.For(s.Pod); err != nil {
		return nil, nil, err
	}
	if err := b.files(s, c, &in); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(logDir, c.Name), 0o755); err != nil {
		return nil, nil, fmt.Errorf("create the container's log directory: %w", err)
	}
	in.RecursiveReadOnly = b.node.RecursiveReadOnly(s.Pod)
	config, err := criconfig.Container(b.node.CRI(), in)
	if err != nil {
		return nil, nil, err
	}
	sandbox, _, err := b.sandbox(s, s.Obs.Sandboxes[0].Attempt)
	return config, sandbox, err
}

func (b *builder) env(ctx context.Context, s worker.Snapshot, c *corev1.Container) ([]*runtimeapi.KeyValue, error) {
	paths := map[string]string{}
	for name, v := range s.Volumes.Volumes {
		paths[name] = v.HostPath
	}
	own, err := env.Resolve(ctx, b.sources, env.Input{
		Pod: s.Pod, Container: c, Static: s.Static, PodIPs: b.podIPs(s), HostIPs: b.node.HostIPs(),
		Allocatable: b.node.Allocatable(), VolumePaths: paths,
	})
	return criconfig.Env(s.Allocation.Containers[c.Name], own), err
}

// podIPs are the sandbox's addresses, on the host network the node's.
func (b *builder) podIPs(s worker.Snapshot) []string {
	if s.Pod.Spec.HostNetwork || len(s.Obs.Sandboxes) == 0 {
		return b.node.HostIPs()
	}
	return s.Obs.Sandboxes[0].IPs
}

func (b *builder) subPaths(ctx context.Context, s worker.Snapshot,
	in criconfig.ContainerInput,
) (map[int]string, error) {
	wanted, err := criconfig.SubPaths(in)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	reply, err := b.pods.SubPaths(ctx, topic.SubPathRequest{
		Ref:       topic.RefOf(s.Pod),
		Container: in.Container.Name, Mounts: wanted,
	})
	if err != nil {
		return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", wanted[0].Volume,
			in.Container.Name, err)
	}
	return reply.Paths, nil
}

// files writes the pod's hosts file and an empty termination log.
func (b *builder) files(s worker.Snapshot, c *corev1.Container, in *criconfig.ContainerInput) error {
	podDir := filepath.Join(b.node.CRI().RootDir, "pods", string(s.Pod.UID))
	containerDir := filepath.Join(podDir, "containers", c.Name)
	if err := os.MkdirAll(containerDir, 0o750); err != nil {
		return fmt.Errorf("create the container's directory: %w", err)
	}
	if c.TerminationMessagePath != "" {
		// each run has its own, all tries of a start the same
		path := filepath.Join(containerDir, strconv.Itoa(in.RestartCount))
		if err := createLog(path); err != nil {
			return fmt.Errorf("create the termination log: %w", err)
		}
		in.TerminationLog = path
	}
	if mountsPath(c, "/etc/hosts") {
		return nil
	}
	hosts, err := dns.Hosts(dns.HostsInput{
		Pod: s.Pod, ClusterDomain: b.node.CRI().ClusterDomain, PodIPs: b.podIPs(s), NodeHosts: nodeHosts(s.Pod),
	})
	if err != nil {
		return fmt.Errorf("compute /etc/hosts: %w", err)
	}
	in.HostsFile = dns.HostsPath(podDir)
	b.hosts.Lock()
	defer b.hosts.Unlock()
	return dns.WriteHosts(in.HostsFile, hosts)
}

// createLog makes a file that any user of the container may write to. One that is there keeps what it has: the run that
// an earlier process has begun may have written it.
func createLog(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(0o666), file.Close())
}

func nodeHosts(pod *corev1.Pod) []byte {
	if !pod.Spec.HostNetwork {
		return nil
	}
	data, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return nil
	}
	return data
}

func mountsPath(c *corev1.Container, path string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].MountPath == path {
			return true
		}
	}
	return false
}

// target is the container whose PID namespace an ephemeral container shares.
func target(s worker.Snapshot, name string) string {
	for i := range s.Pod.Spec.EphemeralContainers {
		e := &s.Pod.Spec.EphemeralContainers[i]
		if e.Name != name || e.TargetContainerName == "" {
			continue
		}
		for _, c := range s.Obs.Containers {
			if c.Name == e.TargetContainerName && c.State == topic.ContainerRunning {
				return c.ID
			}
		}
	}
	return ""
}

func (b *builder) logDir(pod *corev1.Pod) string {
	return orphans.LogDir(b.node.CRI().PodLogsDir, pod.Namespace, pod.Name, pod.UID)
}

// restartCount is the action's attempt; for a container that the runtime has never seen, one more than
// the newest log file says, so that logs of runs that the runtime has forgotten aren't overwritten.
func restartCount(obs topic.PodObservation, logDir, name string, action plan.Action) int {
	if action.Attempt > 0 || action.ID != "" {
		return int(action.Attempt)
	}
	for _, c := range obs.Containers {
		if c.Name == name {
			return int(action.Attempt)
		}
	}
	entries, err := os.ReadDir(filepath.Join(logDir, name))
	if err != nil {
		return 0
	}
	count := 0
	for _, e := range entries {
		number, _, found := strings.Cut(e.Name(), ".log")
		if n, err := strconv.Atoi(number); found && err == nil {
			count = max(count, n+1)
		}
	}
	return count
}
