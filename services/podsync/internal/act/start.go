package act

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/cleanup"
	"kubelot.dev/services/podsync/internal/criconfig"
	"kubelot.dev/services/podsync/internal/dns"
	"kubelot.dev/services/podsync/internal/env"
	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/plan"
	"kubelot.dev/services/podsync/internal/report"
	"kubelot.dev/services/podsync/internal/worker"
)

// pullBackOffShown is how soon after a failed pull the waiting reason turns from ErrImagePull to ImagePullBackOff.
const pullBackOffShown = 2 * time.Second

// ensureImage makes the images of the container and of the image volumes it mounts present.
func (a *Actor) ensureImage(ctx context.Context, s worker.Snapshot, action plan.Action) (worker.Images, error) {
	c := plan.Container(s.Pod, action.Container)
	if c == nil {
		return worker.Images{}, fmt.Errorf("the pod has no container %q any more", action.Container)
	}
	path := report.FieldPath(s.Pod, c.Name)
	got, err := a.image(ctx, s, image.Request{FieldPath: path, Container: path, Image: c.Image, Policy: c.ImagePullPolicy})
	if err != nil {
		return worker.Images{}, err
	}
	volumes, err := a.imageVolumes(ctx, s, c)
	return worker.Images{Image: got, Volumes: volumes}, err
}

// image makes the image of the request present, to which it adds what follows from the pod.
func (a *Actor) image(ctx context.Context, s worker.Snapshot, req image.Request) (image.Image, error) {
	handler, err := a.handler(ctx, s.Pod)
	if err != nil {
		return image.Image{}, err
	}
	req.Pod, req.Secrets, req.RuntimeHandler = s.Pod, a.pullSecrets(ctx, s.Pod), handler
	got, err := a.Images.Ensure(ctx, req)
	var failed *image.Error
	if errors.As(err, &failed) {
		retry := failed.RetryAt
		if retry.IsZero() {
			retry = time.Now().Add(time.Hour) // only a change of the spec helps, and that clears the failure
		}
		if failed.Reason == image.ReasonPull {
			retry = time.Now().Add(pullBackOffShown) // the puller answers with its back-off then
		}
		return got, &worker.Failed{Reason: failed.Reason, Message: failed.Message, RetryAt: retry}
	}
	return got, err
}

// pullSecrets reads the pod's pull secrets. A missing one is reported and left out: the image may not need it.
func (a *Actor) pullSecrets(ctx context.Context, pod *corev1.Pod) []corev1.Secret {
	var secrets []corev1.Secret
	var missing []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if a.Sources == nil || ref.Name == "" {
			continue
		}
		secret, err := a.Sources.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, *secret)
	}
	if len(missing) > 0 {
		a.Report.Event(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return secrets
}

// imageVolumes makes the image volumes that the container mounts present (KEP-4639).
func (a *Actor) imageVolumes(ctx context.Context, s worker.Snapshot, c *corev1.Container) (map[string]*runtimeapi.ImageSpec, error) {
	specs := map[string]*runtimeapi.ImageSpec{}
	for i := range s.Pod.Spec.Volumes {
		v := &s.Pod.Spec.Volumes[i]
		if v.Image == nil || !mounts(c, v.Name) {
			continue
		}
		got, err := a.image(ctx, s, image.Request{Container: report.FieldPath(s.Pod, c.Name), Image: v.Image.Reference, Policy: v.Image.PullPolicy})
		if err != nil {
			return nil, err
		}
		specs[v.Name] = &runtimeapi.ImageSpec{Image: got.Ref, UserSpecifiedImage: v.Image.Reference, Annotations: s.Pod.Annotations}
	}
	return specs, nil
}

func mounts(c *corev1.Container, volume string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == volume {
			return true
		}
	}
	return false
}

// prepare builds a container's configuration and the files it mounts.
func (a *Actor) prepare(ctx context.Context, s worker.Snapshot, c *corev1.Container, action plan.Action) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	in := criconfig.ContainerInput{
		Pod: s.Pod, Container: c, ImageRef: s.Images.Ref, ImageUser: criconfig.ImageUser{UID: s.Images.UID, Username: s.Images.Username}, ImageVolumes: s.Images.Volumes,
		Volumes: s.Volumes.Volumes, SupplementalGroups: groups(s), TargetID: a.target(s, c.Name),
	}
	logDir := a.logDir(s.Pod)
	in.RestartCount = restartCount(s.Obs, logDir, c.Name, action)
	var err error
	if in.Env, err = a.env(ctx, s, c); err != nil {
		return nil, nil, err
	}
	if in.SubPaths, err = a.subPaths(ctx, s, in); err != nil {
		return nil, nil, err
	}
	if in.UserNamespace, err = a.UserNS.For(s.Pod); err != nil {
		return nil, nil, err
	}
	if err := a.files(s, c, &in); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Join(logDir, c.Name), 0o755); err != nil {
		return nil, nil, fmt.Errorf("create the container's log directory: %w", err)
	}
	in.RecursiveReadOnly = a.Node.RecursiveReadOnly(s.Pod)
	config, err := criconfig.Container(a.Node.CRI(), in)
	if err != nil {
		return nil, nil, err
	}
	sandbox, _, err := a.sandboxConfig(s, s.Obs.Sandboxes[0].Attempt)
	return config, sandbox, err
}

func (a *Actor) env(ctx context.Context, s worker.Snapshot, c *corev1.Container) ([]*runtimeapi.KeyValue, error) {
	paths := map[string]string{}
	for name, v := range s.Volumes.Volumes {
		paths[name] = v.HostPath
	}
	return env.Resolve(ctx, a.Sources, env.Input{
		Pod: s.Pod, Container: c, Static: s.Static, PodIPs: a.podIPs(s), HostIPs: a.Node.HostIPs(),
		Allocatable: a.Node.Allocatable(), VolumePaths: paths,
	})
}

// podIPs are the sandbox's addresses, on the host network the node's.
func (a *Actor) podIPs(s worker.Snapshot) []string {
	if s.Pod.Spec.HostNetwork || len(s.Obs.Sandboxes) == 0 {
		return a.Node.HostIPs()
	}
	return s.Obs.Sandboxes[0].IPs
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

func (a *Actor) subPaths(ctx context.Context, s worker.Snapshot, in criconfig.ContainerInput) (map[int]string, error) {
	wanted, err := criconfig.SubPaths(in)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	reply, err := a.SubPaths(ctx, topic.SubPathRequest{Ref: topic.RefOf(s.Pod), Container: in.Container.Name, Mounts: wanted})
	if err != nil {
		return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container %q: %w", wanted[0].Volume, in.Container.Name, err)
	}
	return reply.Paths, nil
}

// files writes the pod's hosts file and an empty termination log.
func (a *Actor) files(s worker.Snapshot, c *corev1.Container, in *criconfig.ContainerInput) error {
	podDir := filepath.Join(a.Node.CRI().RootDir, "pods", string(s.Pod.UID))
	containerDir := filepath.Join(podDir, "containers", c.Name)
	if err := os.MkdirAll(containerDir, 0o750); err != nil {
		return fmt.Errorf("create the container's directory: %w", err)
	}
	if c.TerminationMessagePath != "" {
		path := filepath.Join(containerDir, strconv.Itoa(in.RestartCount)) // each run has its own, all tries of a start the same
		if err := createLog(path); err != nil {
			return fmt.Errorf("create the termination log: %w", err)
		}
		in.TerminationLog = path
	}
	if mountsPath(c, "/etc/hosts") {
		return nil
	}
	hosts, err := dns.Hosts(dns.HostsInput{
		Pod: s.Pod, ClusterDomain: a.Node.CRI().ClusterDomain, PodIPs: a.podIPs(s), NodeHosts: nodeHosts(s.Pod),
	})
	if err != nil {
		return fmt.Errorf("compute /etc/hosts: %w", err)
	}
	in.HostsFile = dns.HostsPath(podDir)
	a.hosts.Lock()
	defer a.hosts.Unlock()
	return dns.WriteHosts(in.HostsFile, hosts)
}

// createLog makes a file that any user of the container may write to. One that is there keeps what it has: the run that an
// earlier process has begun may have written it.
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
func (a *Actor) target(s worker.Snapshot, name string) string {
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

func (a *Actor) logDir(pod *corev1.Pod) string {
	return cleanup.LogDir(a.Node.CRI().PodLogsDir, pod.Namespace, pod.Name, pod.UID)
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
