package kit

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"kubelot.dev/test/deviceplugin"
)

// DevicePlugin is a device plugin of the bed's node.
type DevicePlugin struct {
	*deviceplugin.Plugin
	t testing.TB
}

// DevicePlugin makes a plugin with healthy devices, which Serve starts.
func (b *Bed) DevicePlugin(t testing.TB, resource string, ids ...string) *DevicePlugin {
	t.Helper()
	return &DevicePlugin{deviceplugin.New(filepath.Join(b.Node.RootDir, "device-plugins"), resource, ids...), t}
}

// Serve runs the plugin until the test ends.
func (p *DevicePlugin) Serve() {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	p.t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		p.Run(ctx, func(err error) { p.t.Log(err) })
	}()
}

// PodResources asks the node's PodResources API for a pod. It waits for an API that isn't there for a moment.
func (n *Namespace) PodResources(name string) *podresourcesapi.PodResources {
	n.t.Helper()
	socket := filepath.Join(n.bed.Node.RootDir, "pod-resources", "kubelet.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	var answer *podresourcesapi.GetPodResourcesResponse
	Eventually(n.t, "the PodResources API to have "+name, func() (err error) {
		ctx, cancel := context.WithTimeout(n.t.Context(), 10*time.Second)
		defer cancel()
		answer, err = podresourcesapi.NewPodResourcesListerClient(conn).Get(ctx,
			&podresourcesapi.GetPodResourcesRequest{PodName: name, PodNamespace: n.Name})
		return err
	})
	return answer.GetPodResources()
}
