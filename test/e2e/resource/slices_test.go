package resource

import (
	"fmt"
	"sync"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1alpha1 "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"kubelot.dev/test/e2e/kit"
)

// slicesStay is how long a driver may be away before its ResourceSlices are deleted, as with the kubelet.
const slicesStay = 30 * time.Second

// The node deletes the ResourceSlices of a driver that is gone, after some time: pods would be bound to devices that
// nobody can prepare. A driver that comes back in time keeps them.
func TestSlicesOfADriverThatIsGone(t *testing.T) {
	t.Parallel()
	undisturbed(t) // a daemon that starts deletes the slices of all drivers that are away at once
	stays, goes := bed.DRADriver(t, "stays.test", "toy-0"), bed.DRADriver(t, "goes.test", "toy-0")
	for _, driver := range []*kit.DRADriver{stays, goes} {
		driver.Report("toy-0", healthv1alpha1.HealthStatus_HEALTHY, "")
		serveUntilHeard(t, driver)
		t.Cleanup(driver.Stop)
		driver.Publish() // a daemon that had started just before may have deleted the slice before it knew the driver
	}
	kept, gone := sliceOf(t, stays), sliceOf(t, goes)
	if kept == "" || gone == "" {
		t.Fatalf("the drivers have the slices %q and %q", kept, gone)
	}
	stays.Stop()
	serveUntilHeard(t, stays)

	began := time.Now()
	goes.Stop()
	kit.Eventually(t, "the end of the slice of "+goes.Name, func() error {
		if now := sliceOf(t, goes); now != "" {
			return fmt.Errorf("%s is there", now)
		}
		return nil
	})
	if took := time.Since(began); took < slicesStay {
		t.Errorf("the slice was deleted %v after its driver's end, want %v", took, slicesStay)
	}
	if now := sliceOf(t, stays); now != kept {
		t.Errorf("the driver that came back has the slice %q, and before it was %q", now, kept)
	}
}

// serveUntilHeard serves a driver that reports health, and waits until the daemon listens to it. From then on the
// daemon knows the driver.
func serveUntilHeard(t *testing.T, driver *kit.DRADriver) {
	t.Helper()
	heard := make(chan struct{})
	tell := sync.OnceFunc(func() { close(heard) })
	driver.OnCall(func(call string) {
		if call == "NodeWatchResources" {
			tell()
		}
	})
	driver.Serve()
	await(t, "the daemon to listen to "+driver.Name, heard)
}

// sliceOf is the UID of the driver's ResourceSlice; empty where there is none.
func sliceOf(t *testing.T, driver *kit.DRADriver) types.UID {
	t.Helper()
	list, err := bed.Client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{
		FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + driver.Name,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return ""
	}
	return list.Items[0].UID
}
