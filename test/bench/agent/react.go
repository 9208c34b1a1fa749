package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/test/bench/measure"
)

// quiet is how long after its start a pod has nothing more to do.
const quiet = 10 * time.Second

// Exit measures how long it takes from the signal that ends a pod's container to the pod's last phase at the API
// server.
func (b *Bench) Exit(ctx context.Context, repeat int) (measure.Figures, error) {
	b.Say("%d containers end", repeat)
	names, _, err := b.startAll(ctx, "exit", repeat, func(pod *corev1.Pod) {
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	})
	if err != nil {
		return nil, err
	}
	var told measure.Sample
	for _, name := range names {
		pid, err := b.containerPID(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, measure.Settle); err != nil {
			return nil, err
		}
		begin := time.Now()
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return nil, fmt.Errorf("end the container of %s: %w", name, err)
		}
		limited, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("waited a minute"))
		at, err := b.seen.await(limited, name, isEnded)
		cancel()
		if err != nil {
			return nil, err
		}
		told = append(told, at.Sub(begin))
	}
	f := measure.Figures{}
	f.Time("exit", told, "p50", "p95")
	_, err = b.stopAll(ctx, names)
	return f, err
}

// containerPID asks the runtime for the process of a pod's container.
func (b *Bench) containerPID(ctx context.Context, pod string) (int, error) {
	labels := map[string]string{"io.kubernetes.pod.name": pod, "io.kubernetes.pod.namespace": b.namespace}
	list, err := b.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: labels},
	})
	if err != nil || len(list.GetContainers()) != 1 {
		return 0, fmt.Errorf("%d containers of pod %s, want one: %w", len(list.GetContainers()), pod, err)
	}
	status, err := b.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{
		ContainerId: list.GetContainers()[0].GetId(), Verbose: true,
	})
	if err != nil {
		return 0, fmt.Errorf("status of the container of %s: %w", pod, err)
	}
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil || info.PID <= 1 {
		return 0, fmt.Errorf("process of the container of %s: %d, %w", pod, info.PID, err)
	}
	return info.PID, nil
}

// Config measures how long it takes from a change of a ConfigMap to the change of the file in a pod, for several
// at once.
func (b *Bench) Config(ctx context.Context, repeat int) (measure.Figures, error) {
	b.Say("%d ConfigMaps change", repeat)
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	maps := b.Client.CoreV1().ConfigMaps(b.namespace)
	for i := range repeat {
		config := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("config-%d", i)}, Data: map[string]string{"key": "before"},
		}
		if _, err := maps.Create(ctx, config, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create ConfigMap %s: %w", config.Name, err)
		}
	}
	names, _, err := b.startAll(ctx, "config", repeat, func(pod *corev1.Pod) {
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: pod.Name}}
		pod.Spec.Volumes = []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: source}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "config", MountPath: "/config"}}
	})
	if err != nil {
		return nil, err
	}
	// What follows a start has an agent look at its pods again, which isn't what is measured.
	if err := sleep(ctx, quiet); err != nil {
		return nil, err
	}
	seen := make(measure.Sample, repeat)
	group, groupCtx := errgroup.WithContext(ctx)
	for i, name := range names {
		group.Go(func() (err error) {
			seen[i], err = b.changeToFile(groupCtx, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f := measure.Figures{}
	f.Time("config", seen, "p50", "max")
	_, err = b.stopAll(ctx, names)
	return f, err
}

// changeToFile patches the ConfigMap of the pod's name and looks at the file on the node.
func (b *Bench) changeToFile(ctx context.Context, name string) (time.Duration, error) {
	pod, err := b.Client.CoreV1().Pods(b.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, fmt.Errorf("read pod %s: %w", name, err)
	}
	file := filepath.Join(b.RootDir, "pods", string(pod.UID), "volumes", "kubernetes.io~configmap", "config", "key")
	if data, err := os.ReadFile(file); err != nil || string(data) != "before" {
		return 0, fmt.Errorf("file of ConfigMap %s: %q, %w", name, data, err)
	}
	begin := time.Now()
	patch := []byte(`{"data":{"key":"after"}}`)
	maps := b.Client.CoreV1().ConfigMaps(b.namespace)
	if _, err := maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return 0, fmt.Errorf("change ConfigMap %s: %w", name, err)
	}
	for {
		// Unreadable while it is replaced, at worst.
		if data, err := os.ReadFile(file); err == nil && string(data) == "after" {
			return time.Since(begin), nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, fmt.Errorf("ConfigMap %s doesn't reach its file: %w", name, err)
		}
	}
}

// Restart measures how long it takes from the start of the agent, with n pods running, until a pod that was
// created while it was away is Ready.
func (b *Bench) Restart(ctx context.Context, n, repeat int) (measure.Figures, error) {
	b.Say("%d restarts with %d pods", repeat, n)
	names, _, err := b.startAll(ctx, "restart", n, nil)
	if err != nil {
		return nil, err
	}
	var acted measure.Sample
	for i := range repeat {
		name := fmt.Sprintf("after-restart-%d", i)
		names = append(names, name)
		took, err := b.restart(ctx, name)
		if err != nil {
			return nil, err
		}
		acted = append(acted, took)
	}
	f := measure.Figures{}
	f.Time("restart", acted, "p50", "max")
	if err := sleep(ctx, measure.Settle); err != nil {
		return f, err
	}
	_, err = b.stopAll(ctx, names)
	return f, err
}

func (b *Bench) restart(ctx context.Context, name string) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
	defer cancel()
	b.Agent.Stop()
	if err := b.create(ctx, b.pod(name)); err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := b.Agent.Launch(ctx); err != nil {
		return 0, err
	}
	at, err := b.seen.await(ctx, name, isReady)
	return at.Sub(begin), err
}
