package podresources

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"kubelot.dev/bus/topic"
)

// node is a node with pods of all kinds.
func node() (pods []Pod, allocatable Resources) {
	share := "s1"
	web := pod("default", "web", "init-a", "side-b", "app-c", "app-d")
	web.Containers = map[string]Resources{
		"init-a": {Devices: []Device{device("example.com/gpu", 9)}},
		"side-b": {Devices: []Device{device("example.com/gpu", 2, 1), device("example.com/gpu", 1, 0)}},
		"app-c": {
			CPUs:   []int{9, 3},
			Memory: []Memory{{Type: "memory", Size: 1 << 30, NUMANodes: []int{1, 0}}},
			Claims: []Claim{{Namespace: "default", Name: "gpu", Devices: []ClaimDevice{
				{
					Driver: "dra.example.com", Pool: "n1", Device: "gpu-1",
					CDI: []string{"example.com/gpu=1", "example.com/gpu=all"},
				},
				{Driver: "dra.example.com", Pool: "n1", Device: "gpu-0", ShareID: &share},
			}}},
		},
	}
	ended, refused := pod("default", "ended", "app-c"), pod("default", "refused", "app-c")
	ended.Update.Lifecycle, refused.Phase = topic.Terminated, corev1.PodFailed
	ending := pod("a-first", "ending", "app-c")
	ending.Update.Lifecycle = topic.Terminating
	return []Pod{web, ended, refused, ending}, Resources{
		Devices: []Device{device("example.com/gpu", 1, 0), device("example.com/gpu", 2, 1)},
		CPUs:    []int{3, 2}, Memory: []Memory{{Type: "memory", Size: 8 << 30, NUMANodes: []int{0}}},
	}
}

func webAnswer() *v1.PodResources {
	share := "s1"
	gpu := func(id string, node int) *v1.ContainerDevices {
		return &v1.ContainerDevices{ResourceName: "example.com/gpu", DeviceIds: []string{id}, Topology: topology(node)}
	}
	return &v1.PodResources{Namespace: "default", Name: "web", Containers: []*v1.ContainerResources{
		{Name: "side-b", Devices: []*v1.ContainerDevices{gpu("dev1", 0), gpu("dev2", 1)}},
		{
			Name: "app-c", CpuIds: []int64{3, 9},
			Memory: []*v1.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: topology(0, 1)}},
			DynamicResources: []*v1.DynamicResource{{
				ClaimName: "gpu", ClaimNamespace: "default", ClaimResources: []*v1.ClaimResource{
					{DriverName: "dra.example.com", PoolName: "n1", DeviceName: "gpu-0", ShareId: &share},
					{
						DriverName: "dra.example.com", PoolName: "n1", DeviceName: "gpu-1",
						CdiDevices: []*v1.CDIDevice{{Name: "example.com/gpu=1"}, {Name: "example.com/gpu=all"}},
					},
				},
			}},
		},
		{Name: "app-d"},
	}}
}

func TestV1(t *testing.T) {
	b := newBed(t)
	b.source.pods, b.source.allocatable = node()
	client := v1.NewPodResourcesListerClient(b.conn)

	list, err := client.List(b.context(), &v1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, list, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{
		{Namespace: "a-first", Name: "ending", Containers: []*v1.ContainerResources{{Name: "app-c"}}}, webAnswer(),
	}})
	b.counted(map[string]float64{"requests_total v1": 1, "requests_list v1": 1})

	one, err := client.Get(b.context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "web"})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, one, &v1.GetPodResourcesResponse{PodResources: webAnswer()})

	for _, name := range []string{"ended", "refused", "ending", "", strings.Repeat("a", 300)} {
		_, err = client.Get(b.context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: name})
		want(t, err, codes.NotFound, "pod "+name+" in namespace default not found")
	}

	has, err := client.GetAllocatableResources(b.context(), &v1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, has, &v1.AllocatableResourcesResponse{
		Devices: webAnswer().Containers[0].Devices, CpuIds: []int64{2, 3},
		Memory: []*v1.ContainerMemory{{MemoryType: "memory", Size: 8 << 30, Topology: topology(0)}},
	})
	b.counted(map[string]float64{
		"requests_total v1": 8, "requests_list v1": 1, "requests_get v1": 6, "errors_get v1": 5,
		"requests_get_allocatable v1": 1,
	})
}

func TestV1alpha1(t *testing.T) {
	b := newBed(t)
	b.source.pods, _ = node()
	list, err := v1alpha1.NewPodResourcesListerClient(b.conn).List(b.context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	gpu := func(id string) *v1alpha1.ContainerDevices {
		return &v1alpha1.ContainerDevices{ResourceName: "example.com/gpu", DeviceIds: []string{id}}
	}
	equal(t, list, &v1alpha1.ListPodResourcesResponse{PodResources: []*v1alpha1.PodResources{
		{Namespace: "a-first", Name: "ending", Containers: []*v1alpha1.ContainerResources{{Name: "app-c"}}},
		{Namespace: "default", Name: "web", Containers: []*v1alpha1.ContainerResources{
			{Name: "side-b", Devices: []*v1alpha1.ContainerDevices{gpu("dev1"), gpu("dev2")}},
			{Name: "app-c"},
			{Name: "app-d"},
		}},
	}})
	b.counted(map[string]float64{"requests_total v1alpha1": 1, "requests_list v1alpha1": 1})
}

// TestPodsThatAreOver has both versions list them, as with the gate KubeletPodResourcesListUseActivePods off. Get has
// active pods alone, as with the kubelet.
func TestPodsThatAreOver(t *testing.T) {
	b := newBedOf(t, Ports{Ended: true})
	b.source.pods, _ = node()
	client := v1.NewPodResourcesListerClient(b.conn)
	list, err := client.List(b.context(), &v1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	only := []*v1.ContainerResources{{Name: "app-c"}}
	equal(t, list, &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{
		{Namespace: "a-first", Name: "ending", Containers: only},
		{Namespace: "default", Name: "ended", Containers: only},
		{Namespace: "default", Name: "refused", Containers: only},
		webAnswer(),
	}})
	alpha, err := v1alpha1.NewPodResourcesListerClient(b.conn).List(b.context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil || len(alpha.PodResources) != 4 {
		t.Errorf("v1alpha1 shows %v, %v, want four pods", alpha, err)
	}
	_, err = client.Get(b.context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "refused"})
	want(t, err, codes.NotFound, "refused")
}

// want compares the code of a call's error, and that its text has a part.
func want(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), part) {
		t.Errorf("the call ends with %v, want %v: %q", err, code, part)
	}
}

func TestASourceThatDoesNotKnowYet(t *testing.T) {
	b := newBed(t)
	b.source.pods, b.source.allocatable = node()
	b.source.fail(errNotYet)
	client := v1.NewPodResourcesListerClient(b.conn)
	_, err := client.List(b.context(), &v1.ListPodResourcesRequest{})
	want(t, err, codes.Unavailable, "the bus is away")
	_, err = client.Get(b.context(), &v1.GetPodResourcesRequest{PodNamespace: "default", PodName: "web"})
	want(t, err, codes.Unavailable, "the bus is away")
	_, err = client.GetAllocatableResources(b.context(), &v1.AllocatableResourcesRequest{})
	want(t, err, codes.Unavailable, "the bus is away")
	_, err = v1alpha1.NewPodResourcesListerClient(b.conn).List(b.context(), &v1alpha1.ListPodResourcesRequest{})
	want(t, err, codes.Unavailable, "the bus is away")
	b.source.fail(nil)
	if _, err = client.List(b.context(), &v1.ListPodResourcesRequest{}); err != nil {
		t.Error(err)
	}
	b.counted(map[string]float64{
		"requests_total v1": 4, "requests_list v1": 2, "requests_get v1": 1, "requests_get_allocatable v1": 1,
		"errors_list v1": 1, "errors_get v1": 1, "errors_get_allocatable v1": 1,
		"requests_total v1alpha1": 1, "requests_list v1alpha1": 1, "errors_list v1alpha1": 1,
	})
}

// TestManyClients asks from many goroutines at a time, for the race detector, and has all answers be whole.
func TestManyClients(t *testing.T) {
	b := newBed(t)
	b.source.pods, b.source.allocatable = node()
	client, ctx := v1.NewPodResourcesListerClient(b.conn), b.context()
	var asking sync.WaitGroup
	for range 8 {
		asking.Go(func() {
			for range 20 {
				list, err := client.List(ctx, &v1.ListPodResourcesRequest{})
				if err != nil || len(list.PodResources) != 2 {
					t.Errorf("the list is %v, error %v", list, err)
				}
			}
		})
	}
	asking.Wait()
}
