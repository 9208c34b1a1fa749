package critest

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/labels"
)

// pod is a pod of the suite; what is left of it is removed when the test ends.
type pod struct {
	target Target
	uid    string
	api    *corev1.Pod
	config *runtimeapi.PodSandboxConfig
}

func newPod(t *testing.T, target Target, name string) *pod {
	uid := fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	p := &pod{target: target, uid: uid, api: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "critest", UID: types.UID(uid)},
	}}
	p.config = &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "critest", Uid: uid},
		Labels:       labels.Sandbox(p.api),
		LogDirectory: target.LogDir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: target.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
				Pid: runtimeapi.NamespaceMode_CONTAINER,
			}},
		},
	}
	if target.Host {
		p.config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}
	t.Cleanup(p.clean)
	return p
}

func (p *pod) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	left, _ := p.target.Client.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: labels.Selector(p.uid)})
	for _, box := range left {
		_ = p.target.Client.StopPodSandbox(ctx, box.GetId())
		_ = p.target.Client.RemovePodSandbox(ctx, box.GetId())
	}
}

func (p *pod) ref() topic.Ref {
	return topic.Ref{Namespace: p.api.Namespace, Name: p.api.Name, UID: p.uid}
}

func (p *pod) run(ctx context.Context, t *testing.T) string {
	t.Helper()
	id, err := p.target.Client.RunPodSandbox(ctx, p.config, "")
	must(t, err)
	return id
}

// container is a container with restart count 4, to tell it from the attempt.
func (p *pod) container(name string, command ...string) *runtimeapi.ContainerConfig {
	spec := &corev1.Container{Name: name, Image: p.target.Image}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Image:       &runtimeapi.ImageSpec{Image: p.target.Image, UserSpecifiedImage: p.target.Image},
		Command:     command,
		Labels:      labels.Container(p.api, name),
		Annotations: labels.ContainerAnnotations(p.api, spec, 4, nil),
		LogPath:     name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
			},
		},
	}
}

func (p *pod) start(ctx context.Context, t *testing.T, box string, config *runtimeapi.ContainerConfig) string {
	t.Helper()
	id, err := p.target.Client.CreateContainer(ctx, box, config, p.config)
	must(t, err)
	must(t, p.target.Client.StartContainer(ctx, id))
	return id
}

func wantState(ctx context.Context, t *testing.T, target Target, id string,
	want runtimeapi.ContainerState,
) *runtimeapi.ContainerStatus {
	t.Helper()
	var status *runtimeapi.ContainerStatus
	eventually(ctx, t, func() (err error) {
		status, err = target.Client.ContainerStatus(ctx, id)
		if err == nil && status.GetState() != want {
			err = fmt.Errorf("container %s is %s, want %s", id, status.GetState(), want)
		}
		return err
	})
	return status
}

// eventually repeats check until it has no error; it is for things that another process does.
func eventually(ctx context.Context, t *testing.T, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %v", patience, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
