package kit

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// NodeUID is the UID by which the node and its runtime know the pod; a mirror pod has another one at the API server.
func NodeUID(p *corev1.Pod) string {
	if hash := p.Annotations["kubernetes.io/config.hash"]; hash != "" {
		return hash
	}
	return string(p.UID)
}

// KillSandboxes kills the processes that hold the pod's namespaces. With CRI-O there are none, and the sandboxes are
// stopped behind kubelot's back.
func (b *Bed) KillSandboxes(t testing.TB, p *corev1.Pod) {
	t.Helper()
	runtime := b.CRI.Runtime()
	list, err := runtime.ListPodSandbox(t.Context(),
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.uid": NodeUID(p)},
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range list.GetItems() {
		if b.CRIO(t) {
			if _, err := runtime.StopPodSandbox(t.Context(),
				&runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
				t.Fatal(err)
			}
			continue
		}
		status, err := runtime.PodSandboxStatus(t.Context(),
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.GetId(), Verbose: true})
		if err != nil {
			t.Fatal(err)
		}
		kill(t, status.GetInfo())
	}
}

// KillContainer kills the container's first process, as no process in the container can.
func (b *Bed) KillContainer(t testing.TB, p *corev1.Pod, container string) {
	t.Helper()
	_, id, _ := strings.Cut(Status(p, container).ContainerID, "://")
	status, err := b.CRI.Runtime().ContainerStatus(t.Context(),
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	kill(t, status.GetInfo())
}

// kill kills the process that a verbose answer of the runtime is about.
func kill(t testing.TB, answer map[string]string) {
	t.Helper()
	var info struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(answer["info"]), &info); err != nil || info.PID == 0 {
		t.Fatalf("no process in %q: %v", answer["info"], err)
	}
	if err := syscall.Kill(info.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
