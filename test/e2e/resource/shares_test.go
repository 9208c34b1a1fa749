package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

const claimedShare = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: toy}
spec:
  spec:
    devices:
      requests: [{name: one, exactly: {deviceClassName: $DRIVER, capacity: {requests: {springs: "1"}}}}]
`

// Two claims have a share each of the only device (consumable capacity, KEP-5075). PodResources says which share is
// whose, also after the daemon's death. The driver takes back the share of the pod that has ended, and no other.
func TestClaimsShareADevice(t *testing.T) {
	t.Parallel()
	driver := bed.DRADriver(t, "shares.test", "toy-0")
	driver.Share("springs", "2")
	t.Cleanup(driver.Serve())
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimedShare, "$DRIVER", driver.Name) + "---\n" + pod("first", claimingPod) + "---\n" +
		pod("second", claimingPod))
	first, second := ns.Running("first"), ns.Running("second")
	ns.Equal(first, "app", "echo $TOY", "toy-0")
	ns.Equal(second, "app", "echo $TOY", "toy-0")
	firsts, seconds := allocatedShare(t, ns, first), allocatedShare(t, ns, second)
	if firsts == seconds {
		t.Errorf("both have the share %s", firsts)
	}
	showsShare(t, ns, "first", firsts)
	showsShare(t, ns, "second", seconds)
	killResourceDaemon(t)
	showsShare(t, ns, "first", firsts)
	showsShare(t, ns, "second", seconds)

	unprepares := func(p *corev1.Pod) bool {
		call := "unprepare " + ns.Name + "/" + *p.Status.ResourceClaimStatuses[0].ResourceClaimName
		return slices.Contains(driver.Calls(), call)
	}
	ns.Delete("first", 1)
	ns.Gone(first)
	if !unprepares(first) || unprepares(second) {
		t.Errorf("the first pod is gone, and the driver was asked %v", driver.Calls())
	}
	showsShare(t, ns, "second", seconds)
	ns.Delete("second", 1)
	ns.Gone(second)
	if !unprepares(second) {
		t.Errorf("both pods are gone, and the driver was asked %v", driver.Calls())
	}
}

// allocatedShare is the share of a device that the scheduler has given to the pod's claim.
func allocatedShare(t *testing.T, ns *kit.Namespace, p *corev1.Pod) string {
	t.Helper()
	name := *p.Status.ResourceClaimStatuses[0].ResourceClaimName
	claim, err := bed.Client.ResourceV1().ResourceClaims(ns.Name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	results := claim.Status.Allocation.Devices.Results
	if len(results) != 1 || results[0].ShareID == nil {
		t.Fatalf("the claim %s has %+v, want a share of one device", name, results)
	}
	return string(*results[0].ShareID)
}

// showsShare waits until PodResources has that share of a device for the pod, and nothing else.
func showsShare(t *testing.T, ns *kit.Namespace, pod, want string) {
	t.Helper()
	kit.Eventually(t, "the share of "+pod+" in PodResources", func() error {
		var shares []string
		for _, c := range ns.PodResources(pod).GetContainers() {
			for _, claim := range c.GetDynamicResources() {
				for _, d := range claim.GetClaimResources() {
					shares = append(shares, d.GetShareId())
				}
			}
		}
		if !slices.Equal(shares, []string{want}) {
			return fmt.Errorf("it has %q, want %s", shares, want)
		}
		return nil
	})
}
