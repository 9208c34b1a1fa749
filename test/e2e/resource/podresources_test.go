package resource

import (
	"runtime"
	"slices"
	"testing"

	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesalpha "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"

	"kubelot.dev/test/e2e/kit"
)

// named is a pod of a list.
type named interface {
	GetName() string
	GetNamespace() string
}

// find is the pod of that name in the namespace, among those of a list; the flag is false where it isn't there.
func find[P named](ns *kit.Namespace, all []P, name string) (p P, there bool) {
	i := slices.IndexFunc(all, func(p P) bool { return p.GetName() == name && p.GetNamespace() == ns.Name })
	if i < 0 {
		return p, false
	}
	return all[i], true
}

// The lists of PodResources show the device of a pod and the CPU that it has alone, and that another pod has neither,
// until the pods are gone. Those of v1alpha1 have no CPUs.
func TestPodResourcesLists(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("the machine has one CPU, which is the system's")
	}
	const name = "toys.test/listed"
	bed.DevicePlugin(t, name, "toy-0", "toy-1").Serve()
	devices(t, name, "2", "2")
	ns := bed.Namespace(t)
	ns.Apply(pod("shared", "\n  containers: [{name: app, image: 'busybox:1.36', command: $FOREVER}]\n"))
	shared := ns.Running("shared")
	ns.Apply(pod("alone", `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    resources: {limits: {cpu: 1, memory: 20Mi, `+name+`: 1}}
`))
	alone := ns.Running("alone")
	id := ns.Exec(alone, "app", "echo $TOYS")

	conn := bed.PodResourcesConn(t)
	list := func() (v1 []*podresourcesapi.PodResources, alpha []*podresourcesalpha.PodResources) {
		t.Helper()
		kit.Eventually(t, "the lists of PodResources", func() error {
			all, err := podresourcesapi.NewPodResourcesListerClient(conn).List(t.Context(),
				&podresourcesapi.ListPodResourcesRequest{})
			if err != nil {
				return err
			}
			old, err := podresourcesalpha.NewPodResourcesListerClient(conn).List(t.Context(),
				&podresourcesalpha.ListPodResourcesRequest{})
			v1, alpha = all.GetPodResources(), old.GetPodResources()
			return err
		})
		return v1, alpha
	}
	v1, alpha := list()
	p, _ := find(ns, v1, "alone")
	if c := p.GetContainers(); len(c) != 1 || c[0].GetName() != "app" || !slices.Equal(c[0].GetCpuIds(), []int64{1}) ||
		len(c[0].GetDevices()) != 1 || c[0].GetDevices()[0].GetResourceName() != name ||
		!slices.Equal(c[0].GetDevices()[0].GetDeviceIds(), []string{id}) {
		t.Errorf("v1 has %v, want the CPU 1 and the device %s", p, id)
	}
	old, _ := find(ns, alpha, "alone")
	if c := old.GetContainers(); len(c) != 1 || c[0].GetName() != "app" || len(c[0].GetDevices()) != 1 ||
		c[0].GetDevices()[0].GetResourceName() != name ||
		!slices.Equal(c[0].GetDevices()[0].GetDeviceIds(), []string{id}) {
		t.Errorf("v1alpha1 has %v, want the device %s", old, id)
	}
	p, _ = find(ns, v1, "shared")
	if c := p.GetContainers(); len(c) != 1 || len(c[0].GetCpuIds()) > 0 || len(c[0].GetDevices()) > 0 {
		t.Errorf("v1 has %v of a pod that has nothing of its own", p)
	}
	old, _ = find(ns, alpha, "shared")
	if c := old.GetContainers(); len(c) != 1 || len(c[0].GetDevices()) > 0 {
		t.Errorf("v1alpha1 has %v of a pod that has nothing of its own", old)
	}

	ns.Delete("shared", 1)
	ns.Delete("alone", 1)
	ns.Gone(shared)
	ns.Gone(alone)
	v1, alpha = list()
	for _, name := range []string{"shared", "alone"} {
		_, inV1 := find(ns, v1, name)
		if _, inAlpha := find(ns, alpha, name); inV1 || inAlpha {
			t.Errorf("the pod %s is gone, and still in the list of v1: %t, of v1alpha1: %t", name, inV1, inAlpha)
		}
	}
}
