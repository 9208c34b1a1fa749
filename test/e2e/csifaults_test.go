package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
)

// claimPod is a pod with the claim CLAIM.
const claimPod = `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: CLAIM}}]
`

// volumeDaemon is held for writing by who kills the daemon, and for reading by who needs what one process counts.
var volumeDaemon sync.RWMutex

func killVolumeDaemon(t *testing.T) {
	t.Helper()
	volumeDaemon.Lock()
	defer volumeDaemon.Unlock()
	bed.Signal(t, "volume", syscall.SIGKILL)
}

// A driver hangs: kubelot why names it, the call and since when, and what to do helps. Meanwhile its other volume and
// that of another driver are mounted.
func TestHangingCSI(t *testing.T) {
	t.Parallel()
	volumeDaemon.RLock()
	defer volumeDaemon.RUnlock()
	ns := bed.Namespace(t)
	no := false
	hangs := bed.CSIDriver(t, "hangs.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	other := bed.CSIDriver(t, "other.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach", "--no-stage")
	began := time.Now()
	hangs.Start()
	other.Start()
	hangs.Registered(1, began)
	other.Registered(1, began)
	apply := func(name string, driver *kit.Driver) {
		ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name + "-" + name), FSType: "ext4",
		}}, ns.For(name, corev1.PersistentVolumeFilesystem))
		ns.Apply(ns.Claim(name, "") + pod(name, strings.ReplaceAll(claimPod, "CLAIM", name)))
	}
	hangs.Fault("NodeStageVolume", &csidriver.Fault{Times: 1, Hang: true})
	apply("held", hangs)
	hangs.Called("NodeStageVolume", 0)
	apply("same", hangs)
	apply("another", other)
	ns.Running("same")
	ns.Running("another")
	says(t, ns, "held", "the CSI driver "+hangs.Name+" has not answered NodeStageVolume since", "the driver's answer")
	published := len(hangs.Calls("NodePublishVolume"))
	hangs.Fault("NodePublishVolume", &csidriver.Fault{Times: 1, Hang: true})
	hangs.Kill()
	ns.Because("held", "csi-driver-away", "its CSI driver doesn't answer on this node")
	hangs.Start()
	hangs.Called("NodePublishVolume", published)
	says(t, ns, "held", "the CSI driver "+hangs.Name+" has not answered NodePublishVolume since", "the driver's answer")
	hangs.Kill()
	hangs.Start()
	held := ns.Running("held")

	hangs.Fault("NodeUnpublishVolume", &csidriver.Fault{Times: 1, Hang: true})
	ns.Delete("held", -1)
	hangs.Called("NodeUnpublishVolume", 0)
	says(t, ns, "held", "the CSI driver "+hangs.Name+" has not answered NodeUnpublishVolume since")
	hangs.Fault("NodeUnstageVolume", &csidriver.Fault{Times: 1, Hang: true})
	hangs.Kill()
	hangs.Start()
	ns.Gone(held)
	notStagedMeanwhile(t, ns, hangs)
	for _, name := range []string{"next", "same", "another"} {
		ns.Delete(name, -1)
	}
	unstaged(t, hangs)
	unstaged(t, other)

	kit.Eventually(t, "the metrics of the calls", func() error {
		page, err := bed.TryPage(context.WithoutCancel(t.Context()), "volume", "/metrics")
		if err != nil {
			return err
		}
		for _, code := range []string{"OK", "Unavailable"} {
			series := fmt.Sprintf("csi_operations_seconds_count{driver_name=%q,grpc_status_code=%q,"+
				`method_name="/csi.v1.Node/NodeStageVolume",migrated="false"}`, hangs.Name, code)
			if !strings.Contains(string(page), series) {
				return fmt.Errorf("no %s", series)
			}
		}
		return nil
	})
}

// notStagedMeanwhile has a pod want the volume of the pod held while NodeUnstageVolume of it hangs. In the end the
// driver says that it is at it still: so it is asked to unstage the volume again, and then to stage it.
func notStagedMeanwhile(t *testing.T, ns *kit.Namespace, driver *kit.Driver) {
	t.Helper()
	driver.Called("NodeUnstageVolume", 0)
	before := len(driver.Calls("NodeStageVolume", "NodeUnstageVolume"))
	ns.Apply(pod("next", strings.ReplaceAll(claimPod, "CLAIM", "held")))
	ns.Because("next", "csi-unstage-slow", "has not answered NodeUnstageVolume since")
	if calls := driver.Calls("NodeStageVolume", "NodeUnstageVolume"); len(calls) != before {
		t.Errorf("the driver was called %q while it unstages", calls)
	}
	driver.Fault("NodeUnstageVolume", &csidriver.Fault{Times: 1, Code: codes.Aborted, Message: "it is under way"})
	ns.Running("next")
	want := []string{"NodeUnstageVolume Aborted", "NodeUnstageVolume OK", "NodeStageVolume OK"}
	if got := driver.Calls("NodeStageVolume", "NodeUnstageVolume")[before-1:]; !slices.Equal(got, want) {
		t.Errorf("the driver was called %q; want %q", got, want)
	}
}

// A pod that is deleted by force, without a grace period, leaves nothing: its volume is unpublished and unstaged though
// the API server doesn't know of the pod any more, and though the volume daemon is killed meanwhile.
func TestForcedDeletionCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	no := false
	driver := bed.CSIDriver(t, "forced.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	pv := ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name),
	}}, nil)
	ns.Apply(ns.Claim("data", "") + pod("forced", strings.ReplaceAll(claimPod, "CLAIM", "data")))
	p := ns.Running("forced")
	driver.Fault("NodeUnpublishVolume", &csidriver.Fault{Times: 1, DelaySeconds: 1})
	ns.Delete("forced", 0)
	driver.Called("NodeUnpublishVolume", 0)
	killVolumeDaemon(t)
	kit.Eventually(t, "nothing is left of the volume", func() error {
		left, err := filepath.Glob(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name, "*"))
		table, readErr := os.ReadFile("/proc/self/mountinfo")
		if _, statErr := os.Lstat(filepath.Join(bed.Node.RootDir, "pods", string(p.UID))); statErr == nil {
			left = append(left, "the pod's directory")
		}
		if strings.Contains(string(table), pv) {
			left = append(left, "a mount")
		}
		if len(left) > 0 {
			readErr = errors.Join(readErr, fmt.Errorf("%q are left", left))
		}
		return errors.Join(err, readErr)
	})
}

// A filesystem grows while a pod has it. The kubelet looks with each sync of the pod, kubelot about each 75 s.
func TestXFSGrowsInUse(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mkfs.xfs"); err != nil {
		t.Skipf("Debian's package xfsprogs isn't installed: %v", err)
	}
	ns := bed.Namespace(t)
	no := false
	driver := bed.CSIDriver(t, "xfs.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	handle := driver.ProvisionOf(ns.Name, 512<<20)
	pv := ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: handle, FSType: "xfs",
	}}, nil)
	ns.Apply(ns.Claim("data", "") + pod("grows", strings.ReplaceAll(claimPod, "CLAIM", "data")))
	p := ns.Running("grows")
	ns.Equal(p, "app", "echo -n precious > /data/file; stat -f -c %T /data", "xfs")
	driver.Grow(ns, "data", pv, handle, resource.MustParse("2Gi"))
	awaitGrowth(t, ns, "grows")
	ns.Equal(p, "app", "cat /data/file; [ $(df -m /data | tail -1 | awk '{print $2}') -gt 1500 ] && echo ' larger'",
		"precious larger")
	ns.Delete("grows", -1)
	unstaged(t, driver)
}

// awaitGrowth waits until the pod's volume has grown in use. The daemon looks at a claim every 75 s, and begins that
// time anew whenever another test has killed it.
func awaitGrowth(t *testing.T, ns *kit.Namespace, pod string) {
	t.Helper()
	for deadline := time.Now().Add(4 * kit.Patience); ; time.Sleep(time.Second) {
		list, err := bed.Client.CoreV1().Events(ns.Name).List(t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.name=" + pod + ",reason=FileSystemResizeSuccessful",
		})
		switch {
		case err == nil && len(list.Items) > 0:
			return
		case time.Now().After(deadline):
			t.Fatalf("waited %v until the volume of %s has grown: %v", 4*kit.Patience, pod, err)
		}
	}
}

// unstaged waits until nothing of the driver's volumes is left on the node.
func unstaged(t *testing.T, driver *kit.Driver) {
	t.Helper()
	kit.Eventually(t, "the volumes of "+driver.Name+" are unstaged", func() error {
		left, err := filepath.Glob(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name, "*"))
		table, readErr := os.ReadFile("/proc/self/mountinfo")
		if strings.Contains(string(table), driver.State) {
			left = append(left, "a mount of "+driver.State)
		}
		if len(left) > 0 {
			readErr = errors.Join(readErr, fmt.Errorf("%q are left", left))
		}
		return errors.Join(err, readErr)
	})
}
