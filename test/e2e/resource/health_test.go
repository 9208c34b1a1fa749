package resource

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"kubelot.dev/test/e2e/kit"
)

// The status of a container has the health of the device that it claims, as the driver streams it (KEP-4680), also when
// the daemon was killed. Some time after the driver has gone it is unknown, until the driver is back.
func TestHealthOfClaimedDevices(t *testing.T) {
	t.Parallel()
	const healthy, unhealthy = healthv1alpha1.HealthStatus_HEALTHY, healthv1alpha1.HealthStatus_UNHEALTHY
	driver := bed.DRADriver(t, "health.test", "toy-0")
	driver.Report("toy-0", healthy, "")
	driver.Serve()
	t.Cleanup(driver.Stop)
	ns := bed.Namespace(t)
	ns.Apply(strings.ReplaceAll(claimed, "$DRIVER", driver.Name) + "---\n" + pod("claims", claimingPod))
	p := ns.Running("claims")
	shows := func(health corev1.ResourceHealthStatus, message string) {
		t.Helper()
		device := corev1.ResourceHealth{ResourceID: "health.test/toy=toy-0", Health: health}
		if message != "" {
			device.Message = &message
		}
		want := []corev1.ResourceStatus{{Name: "claim:toy", Resources: []corev1.ResourceHealth{device}}}
		what := strings.TrimSpace(fmt.Sprintf("its device is %s %s", health, message))
		p = ns.Wait("claims", what, func(p *corev1.Pod) bool {
			s := kit.Status(p, "app")
			return s != nil && reflect.DeepEqual(s.AllocatedResourcesStatus, want)
		})
	}
	shows(corev1.ResourceHealthStatusHealthy, "")
	driver.Report("toy-0", unhealthy, "the spring is broken")
	shows(corev1.ResourceHealthStatusUnhealthy, "the spring is broken")
	killResourceDaemon(t)
	driver.Report("toy-0", healthy, "")
	shows(corev1.ResourceHealthStatusHealthy, "")

	driver.Stop()
	shows(corev1.ResourceHealthStatusUnknown, "")
	driver.Report("toy-0", unhealthy, "nobody has wound it up")
	driver.Serve()
	shows(corev1.ResourceHealthStatusUnhealthy, "nobody has wound it up")
	driver.Report("toy-0", healthy, "it runs again")
	shows(corev1.ResourceHealthStatusHealthy, "it runs again")
	// That a device is not healthy changes nothing for its container.
	if s := kit.Status(p, "app"); s.RestartCount != 0 || !kit.Ready(p) {
		t.Errorf("the pod is %+v", p.Status)
	}
	// The driver ends with the test, and its pod must be gone by then.
	ns.Delete("claims", 1)
	ns.Gone(p)
}
