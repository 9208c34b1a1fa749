package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

const inlinePod = `
  securityContext: {fsGroup: 4321}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    csi: {driver: $DRIVER, volumeAttributes: {colour: blue}, nodePublishSecretRef: {name: key}}
`

// A volume of a pod's own spec: the driver comes after the pod, hears of it, outlives the volume daemon, and takes the
// volume back though it fails at first.
func TestInlineCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	yes, file := true, storagev1.FileFSGroupPolicy
	driver := bed.CSIDriver(t, "inline.csi.test", storagev1.CSIDriverSpec{
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral},
		PodInfoOnMount:       &yes, FSGroupPolicy: &file,
		TokenRequests: []storagev1.TokenRequest{{Audience: "vault"}}, ServiceAccountTokenInSecrets: &yes,
	}, "--no-attach")
	ns.Apply("apiVersion: v1\nkind: Secret\nmetadata: {name: key}\nstringData: {password: s3cret}\n---\n" +
		pod("inline", strings.ReplaceAll(inlinePod, "$DRIVER", driver.Name)))
	ns.Event("inline", "FailedMount", "driver name "+driver.Name+" not found in the list of registered CSI drivers")

	began := time.Now()
	driver.Start()
	t.Logf("the driver was registered %s after its start", driver.Registered(1, began))
	p := ns.Running("inline")
	ns.Equal(p, "app", "cd /data && cat context.colour context.csi.storage.k8s.io_pod.name "+
		"context.csi.storage.k8s.io_ephemeral secrets.password", "blueinlinetrues3cret")
	ns.Equal(p, "app", "grep -c '\"vault\":{\"token\":' /data/secrets.csi.storage.k8s.io_serviceAccount.tokens; "+
		"stat -c %g /data/context.colour", "1\n4321")

	dir := filepath.Join(bed.Node.RootDir, "pods", string(p.UID), "volumes/kubernetes.io~csi/data")
	data, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
	var record map[string]string
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil || record["driverName"] != driver.Name || record["volumeLifecycleMode"] != "Ephemeral" ||
		record["specVolID"] != "data" || record["nodeName"] != kit.NodeName {
		t.Errorf("%s, %v", data, err)
	}
	if strings.Contains(string(data), "s3cret") {
		t.Error("the record has the secret")
	}

	var before int
	kit.Eventually(t, "the volume daemon", func() (err error) {
		before, err = bed.Daemon("volume")
		return err
	})
	killVolumeDaemon(t)
	driver.Registered(2, began) // the next daemon asks again
	kit.Eventually(t, "the next volume daemon", func() error {
		if now, err := bed.Daemon("volume"); err != nil || now == before {
			return fmt.Errorf("it is %d: %w", now, err)
		}
		return stillMounted(filepath.Join(dir, "mount"))
	})

	driver.Fault("NodeUnpublishVolume", &csidriver.Fault{Times: 1, Code: codes.Internal, Message: "not now"})
	ns.Delete("inline", -1)
	ns.Gone(p)
	want := []string{"NodePublishVolume OK", "NodeUnpublishVolume Internal", "NodeUnpublishVolume OK"}
	if got := once(driver.Calls("NodePublishVolume", "NodeUnpublishVolume")); !slices.Equal(got, want) {
		t.Errorf("the driver was called %q; want %q", got, want)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", dir, err)
	}
}

// once leaves out what a call repeats: the next volume daemon can't know of a call that another test's SIGKILL meets.
func once(calls []string) []string { return slices.Compact(calls) }

// A persistent volume that needn't be attached: two pods share it, the volume daemon is killed while the driver stages
// it, and the driver dies when it has published it. It is unstaged after its last pod, whose end doesn't wait for that.
func TestPersistentCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	no := false
	driver := bed.CSIDriver(t, "persistent.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	handle := driver.Provision(ns.Name)
	pv := ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: handle, FSType: "ext4",
	}}, nil)
	const spec = `
  securityContext: {fsGroup: 4321}
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
	driver.Fault("NodeStageVolume", &csidriver.Fault{Times: 1, DelaySeconds: 2})
	driver.Fault("NodePublishVolume", &csidriver.Fault{Times: 1, Kill: "after"})
	ns.Apply(ns.Claim("data", "") + pod("one", spec))
	driver.Called("NodeStageVolume", 0)
	killVolumeDaemon(t)
	driver.Dies()
	driver.Start()
	one := ns.Running("one")
	ns.Exec(one, "app", "echo -n new > /data/file")
	ns.Apply(pod("two", spec))
	two := ns.Running("two")
	ns.Equal(two, "app", "cat /data/file; stat -c ' %g' /data/file", "new 4321")

	staged := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name)
	point := filepath.Join(bed.Node.RootDir, "pods", string(two.UID), "volumes/kubernetes.io~csi", pv, "mount")
	if err := stillMounted(point); err != nil {
		t.Error(err)
	}
	driver.Fault("NodeUnstageVolume", &csidriver.Fault{Code: codes.Internal, Message: "not now"})
	ns.Delete("one", -1)
	ns.Gone(one)
	ns.Equal(two, "app", "cat /data/file", "new")
	if calls := driver.Calls("NodeUnstageVolume"); len(calls) > 0 {
		t.Errorf("the volume is unstaged while a pod has it: %q", calls)
	}
	ns.Delete("two", -1)
	ns.Gone(two)
	kit.Eventually(t, "the driver is asked to unstage", func() error {
		if calls := driver.Calls("NodeUnstageVolume"); !slices.Contains(calls, "NodeUnstageVolume Internal") {
			return fmt.Errorf("it was called %q", calls)
		}
		return nil
	})
	driver.Fault("NodeUnstageVolume", nil)
	kit.Eventually(t, "the volume is unstaged", func() error {
		left, err := filepath.Glob(filepath.Join(staged, "*"))
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q are left", left)
		}
		return err
	})
	calls := once(driver.Calls("NodePublishVolume", "NodeUnpublishVolume"))
	want := []string{"NodePublishVolume", "NodePublishVolume OK", "NodeUnpublishVolume OK"}
	if !slices.Equal(calls, want) {
		t.Errorf("the driver was called %q; want %q", calls, want)
	}
	if last := driver.Calls("NodeUnstageVolume"); len(last) < 2 || last[len(last)-1] != "NodeUnstageVolume OK" {
		t.Errorf("the driver was called %q", last)
	}
}

// A persistent volume that pods get as a device: the volume daemon is killed while the driver publishes it, a second
// pod has it at the same time, and it grows before that one starts. In the end nothing of it is left on the node.
func TestBlockCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	no := false
	driver := bed.CSIDriver(t, "block.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	handle := driver.Provision(ns.Name)
	pv := ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: handle,
	}}, ns.For("disk", corev1.PersistentVolumeBlock))
	const spec = `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeDevices: [{name: disk, devicePath: /dev/xvda}]}
  volumes: [{name: disk, persistentVolumeClaim: {claimName: disk}}]
`
	driver.Fault("NodePublishVolume", &csidriver.Fault{Times: 1, DelaySeconds: 2})
	ns.Apply(ns.Claim("disk", ", volumeMode: Block") + pod("one", spec))
	driver.Called("NodePublishVolume", 0)
	killVolumeDaemon(t)
	one := ns.Running("one")
	ns.Equal(one, "app", "printf precious > /dev/xvda && blockdev --getsize64 /dev/xvda", "33554432")

	size := resource.MustParse("2Gi")
	driver.Grow(ns, "disk", pv, handle, size)
	ns.Apply(pod("two", spec))
	two := ns.Running("two")
	ns.Equal(two, "app", "head -c 8 /dev/xvda; blockdev --getsize64 /dev/xvda", "precious2147483648")
	ns.Equal(one, "app", "blockdev --getsize64 /dev/xvda", "2147483648")
	claim, err := bed.Client.CoreV1().PersistentVolumeClaims(ns.Name).Get(t.Context(), "disk", metav1.GetOptions{})
	if has := claim.Status.Capacity[corev1.ResourceStorage]; err != nil || has.Cmp(size) != 0 ||
		len(claim.Status.AllocatedResourceStatuses) > 0 {
		t.Errorf("the claim's status is %+v, %v", claim.Status, err)
	}
	ns.Event("two", "FileSystemResizeSuccessful", "MountVolume.NodeExpandVolume succeeded for volume \""+pv+"\"")

	kit.Eventually(t, "the driver's figures of the volume", func() error {
		_, p, err := summary(t.Context(), ns, "two")
		if err != nil {
			return err
		}
		if len(p.VolumeStats) == 0 || p.VolumeStats[0].PVCRef == nil {
			return fmt.Errorf("volumes %+v", p.VolumeStats)
		}
		return within("capacity", p.VolumeStats[0].CapacityBytes, 2<<30, 2<<30)
	})

	devices := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi/volumeDevices")
	ns.Delete("one", -1)
	ns.Gone(one)
	ns.Equal(two, "app", "head -c 8 /dev/xvda", "precious")
	ns.Delete("two", -1)
	ns.Gone(two)
	kit.Eventually(t, "nothing of the volume is left", func() error {
		left, err := filepath.Glob(filepath.Join(devices, pv, "*"))
		for _, kind := range []string{"publish", "staging"} {
			more, globErr := filepath.Glob(filepath.Join(devices, kind, pv))
			left, err = append(left, more...), errors.Join(err, globErr)
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%q are left", left)
		}
		return err
	})
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, file := range files {
		if data, readErr := os.ReadFile(file); readErr == nil && strings.Contains(string(data), devices+"/"+pv) {
			err = errors.Join(err, fmt.Errorf("a loop device holds %s", data))
		}
	}
	if err != nil {
		t.Error(err)
	}
	// The driver goes on with the call whose caller was killed, and answers nobody.
	want := []string{
		"NodeStageVolume OK", "NodePublishVolume OK", "NodeExpandVolume OK", "NodeUnpublishVolume OK", "NodeUnstageVolume OK",
	}
	calls := driver.Calls("NodeStageVolume", "NodePublishVolume", "NodeExpandVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume")
	if !slices.Equal(once(slices.Clone(calls)), want) {
		t.Errorf("the driver was called %q; want %q", calls, want)
	}
}
