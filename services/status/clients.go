package status

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/daemon"
	"kubelot.dev/kube"
)

// podClient adapts the client's UID type and notes when it writes a status.
type podClient struct {
	*kube.Client
	wrote *lastWrite
}

// DeletePod removes the API object of the pod with that UID.
func (c podClient) DeletePod(ctx context.Context, namespace, name, uid string) error {
	c.wrote.note()
	return c.Client.DeletePod(ctx, namespace, name, types.UID(uid))
}

// PatchPodStatus applies a patch to pods/status.
func (c podClient) PatchPodStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	c.wrote.note()
	return c.Client.PatchPodStatus(ctx, namespace, name, patch)
}

// lastWrite is when a pod was last written to the API server; Events give way to that.
// The time is kept with its monotonic clock, which nobody sets.
type lastWrite struct{ at atomic.Pointer[time.Time] }

func (l *lastWrite) note() {
	now := time.Now()
	l.at.Store(&now)
}

func (l *lastWrite) since() time.Duration {
	at := l.at.Load()
	if at == nil {
		return giveWayTo
	}
	return time.Since(*at)
}

// clients are one client for pods and one for Events, so that a flood of Events doesn't hold up a status.
func clients(ctx context.Context, env daemon.Env) (pods, events *kube.Client, err error) {
	k := env.Config.Kubelet
	options := kube.Options{
		Daemon: "status", Version: daemon.Version(), ContentType: k.ContentType, Certificate: env.Config.ClientCertificate,
		Log: env.Log,
	}.WithLimits(k.KubeAPIQPS, k.KubeAPIBurst)
	if pods, err = kube.Open(env.Config.Kubeconfig, options); err != nil {
		return nil, nil, err
	}
	options = options.WithLimits(k.EventRecordQPS, k.EventBurst)
	if events, err = kube.Open(env.Config.Kubeconfig, options); err != nil {
		return nil, nil, err
	}
	return pods, events, nil
}
