package podresources

import (
	"cmp"
	"slices"

	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
)

// podAnswer is the pod in v1.
func podAnswer(p *Pod) *v1.PodResources {
	answer := &v1.PodResources{Name: p.Update.Pod.Name, Namespace: p.Update.Pod.Namespace}
	for _, name := range p.containers() {
		has := p.Containers[name]
		answer.Containers = append(answer.Containers, &v1.ContainerResources{
			Name: name, Devices: devices(has.Devices), CpuIds: cpus(has.CPUs), Memory: memory(has.Memory),
			DynamicResources: claims(has.Claims),
		})
	}
	return answer
}

// alphaAnswer is the pod in v1alpha1, which has devices only, without their topology.
func alphaAnswer(p *Pod) *v1alpha1.PodResources {
	answer := &v1alpha1.PodResources{Name: p.Update.Pod.Name, Namespace: p.Update.Pod.Namespace}
	for _, name := range p.containers() {
		container := &v1alpha1.ContainerResources{Name: name}
		for _, d := range inOrder(p.Containers[name].Devices) {
			container.Devices = append(container.Devices, &v1alpha1.ContainerDevices{
				ResourceName: d.Resource, DeviceIds: []string{d.ID},
			})
		}
		answer.Containers = append(answer.Containers, container)
	}
	return answer
}

// inOrder are the devices by resource and ID.
func inOrder(list []Device) []Device {
	return slices.SortedFunc(slices.Values(list), func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.ID, b.ID))
	})
}

// devices has an entry for each device and NUMA node of it, as the API's clients expect, and one without topology for a
// device that has none.
func devices(list []Device) []*v1.ContainerDevices {
	var answer []*v1.ContainerDevices
	for _, d := range inOrder(list) {
		if len(d.NUMANodes) == 0 {
			answer = append(answer, &v1.ContainerDevices{ResourceName: d.Resource, DeviceIds: []string{d.ID}})
		}
		for _, node := range slices.Sorted(slices.Values(d.NUMANodes)) {
			answer = append(answer, &v1.ContainerDevices{
				ResourceName: d.Resource, DeviceIds: []string{d.ID}, Topology: topology(node),
			})
		}
	}
	return answer
}

func topology(nodes ...int) *v1.TopologyInfo {
	info := &v1.TopologyInfo{}
	for _, node := range slices.Sorted(slices.Values(nodes)) {
		info.Nodes = append(info.Nodes, &v1.NUMANode{ID: int64(node)})
	}
	return info
}

func cpus(list []int) []int64 {
	var answer []int64
	for _, cpu := range slices.Sorted(slices.Values(list)) {
		answer = append(answer, int64(cpu))
	}
	return answer
}

func memory(list []Memory) []*v1.ContainerMemory {
	var answer []*v1.ContainerMemory
	for _, m := range list {
		answer = append(answer, &v1.ContainerMemory{MemoryType: m.Type, Size: m.Size, Topology: topology(m.NUMANodes...)})
	}
	slices.SortStableFunc(answer, func(a, b *v1.ContainerMemory) int {
		return cmp.Or(cmp.Compare(a.MemoryType, b.MemoryType), slices.CompareFunc(a.Topology.Nodes, b.Topology.Nodes,
			func(x, y *v1.NUMANode) int { return cmp.Compare(x.ID, y.ID) }))
	})
	return answer
}

func claims(list []Claim) []*v1.DynamicResource {
	var answer []*v1.DynamicResource
	for _, c := range list {
		answer = append(answer, &v1.DynamicResource{
			ClaimName: c.Name, ClaimNamespace: c.Namespace, ClaimResources: claimDevices(c.Devices),
		})
	}
	slices.SortStableFunc(answer, func(a, b *v1.DynamicResource) int {
		return cmp.Or(cmp.Compare(a.ClaimNamespace, b.ClaimNamespace), cmp.Compare(a.ClaimName, b.ClaimName))
	})
	return answer
}

func claimDevices(list []ClaimDevice) []*v1.ClaimResource {
	var answer []*v1.ClaimResource
	for _, d := range list {
		one := &v1.ClaimResource{DriverName: d.Driver, PoolName: d.Pool, DeviceName: d.Device, ShareId: d.ShareID}
		for _, name := range d.CDI {
			one.CdiDevices = append(one.CdiDevices, &v1.CDIDevice{Name: name})
		}
		answer = append(answer, one)
	}
	slices.SortStableFunc(answer, func(a, b *v1.ClaimResource) int {
		return cmp.Or(cmp.Compare(a.DriverName, b.DriverName), cmp.Compare(a.PoolName, b.PoolName),
			cmp.Compare(a.DeviceName, b.DeviceName), cmp.Compare(a.GetShareId(), b.GetShareId()))
	})
	return answer
}
