package resource

import (
	"fmt"
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// showsDevices waits until PodResources has these devices of the pod: those of claims as "CONTAINER CLAIM
// DRIVER/POOL/DEVICE CDI", and those of plugins as "CONTAINER RESOURCE".
func showsDevices(t *testing.T, ns *kit.Namespace, pod string, want ...string) {
	t.Helper()
	kit.Eventually(t, "PodResources", func() error {
		var got []string
		for _, c := range ns.PodResources(pod).GetContainers() {
			for _, d := range c.GetDevices() {
				got = append(got, c.GetName()+" "+d.GetResourceName())
			}
			for _, claim := range c.GetDynamicResources() {
				for _, d := range claim.GetClaimResources() {
					device := fmt.Sprintf("%s %s/%s %s/%s/%s", c.GetName(), claim.GetClaimNamespace(), claim.GetClaimName(),
						d.GetDriverName(), d.GetPoolName(), d.GetDeviceName())
					for _, cdi := range d.GetCdiDevices() {
						device += " " + cdi.GetName()
					}
					got = append(got, device)
				}
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it has %q, want %q", got, want)
		}
		return nil
	})
}

// A pod asks for an extended resource that a DeviceClass offers (KEP-5004). The scheduler makes a claim for it, and the
// container that asks gets the claim's device, and has it again after the daemon's death. It is given back in the end.
func TestExtendedResourcesByClaims(t *testing.T) {
	t.Parallel()
	const gpu = "example.com/gpu"
	driver := bed.DRADriver(t, "extended.test", "toy-0", "toy-1")
	driver.OfferAs(gpu)
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	const other = "  - {name: other, image: 'busybox:1.36', command: $FOREVER}\n"
	ns.Apply(pod("one", toys(gpu, "1")+other))
	p := ns.Running("one")
	status := p.Status.ExtendedResourceClaimStatus
	if status == nil {
		t.Fatalf("the pod has no claim for its extended resource: %+v", p.Status)
	}
	if m := status.RequestMappings; len(m) != 1 || m[0].ContainerName != "app" || m[0].ResourceName != gpu {
		t.Errorf("its claim is for %+v", m)
	}
	name := status.ResourceClaimName
	claim, err := bed.Client.ResourceV1().ResourceClaims(ns.Name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim.Annotations[resourcev1.ExtendedResourceClaimAnnotation] != "true" {
		t.Errorf("its claim isn't the scheduler's: %+v", claim.ObjectMeta)
	}
	toy := ns.Exec(p, "app", "echo $TOY")
	if toy != "toy-0" && toy != "toy-1" {
		t.Errorf("the container has %q", toy)
	}
	ns.Equal(p, "other", "echo ${TOY:-none}", "none")
	device := func(toy string) string {
		return fmt.Sprintf("app %s/%s %s/%s/%s %[3]s/toy=%[5]s", ns.Name, name, driver.Name, kit.NodeName, toy)
	}
	showsDevices(t, ns, "one", device(toy))
	// As in the kubelet, the status has the health of claims in the pod's spec only.
	if s := kit.Status(p, "app"); len(s.AllocatedResourcesStatus) > 0 {
		t.Errorf("the container's status has %+v", s.AllocatedResourcesStatus)
	}

	asked := driver.Calls()
	killResourceDaemon(t)
	bed.KillContainer(t, p, "app")
	p = ns.Restarted(p, "app", 1)
	ns.Equal(p, "app", "echo $TOY", toy)
	showsDevices(t, ns, "one", device(toy))
	if calls := driver.Calls(); !slices.Equal(calls, asked) || !slices.Contains(calls, "prepare "+ns.Name+"/"+name) {
		t.Errorf("the driver was asked %v, and before the daemon's death %v", calls, asked)
	}
	ns.Delete("one", 1)
	ns.Gone(p)
	if calls := driver.Calls(); !slices.Contains(calls, "unprepare "+ns.Name+"/"+name) {
		t.Errorf("the driver was asked %v", calls)
	}
	claimGone(t, ns, name)

	// Both devices are free. Each DeviceClass also offers its devices by a name that is made of its own.
	ns.Apply(pod("both", toys(resourcev1.ResourceDeviceClassPrefix+driver.Name, "2")))
	p = ns.Running("both")
	name = p.Status.ExtendedResourceClaimStatus.ResourceClaimName
	showsDevices(t, ns, "both", device("toy-0"), device("toy-1"))
	// The driver ends with the test, and its pods must be gone by then.
	ns.Delete("both", 1)
	ns.Gone(p)
}
