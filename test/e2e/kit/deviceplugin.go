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

// DevicePluginInRegistry is DevicePlugin for one that the node finds in plugins_registry.
func (b *Bed) DevicePluginInRegistry(t testing.TB, resource string, ids ...string) *DevicePlugin {
	t.Helper()
	p := &DevicePlugin{deviceplugin.New(t.TempDir(), resource, ids...), t}
	p.Registry = filepath.Join(b.Node.RootDir, "plugins_registry")
	return p
}

// Serve runs the plugin until the test ends. The function that it returns ends it before.
func (p *DevicePlugin) Serve() (stop func()) {
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx, func(err error) { p.t.Log(err) })
	}()
	stop = func() {
		cancel()
		<-done
	}
	p.t.Cleanup(stop)
	return stop
}

// PodResourcesConn is a connection to the node's PodResources API until the test ends.
func (b *Bed) PodResourcesConn(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(b.Node.RootDir, "pod-resources", "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// PodResources asks the node's PodResources API for a pod. It waits for an API that isn't there for a moment.
func (n *Namespace) PodResources(name string) *podresourcesapi.PodResources {
	n.t.Helper()
	conn := n.bed.PodResourcesConn(n.t)
	defer func() { _ = conn.Close() }() // who is connected keeps the daemon awake
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
