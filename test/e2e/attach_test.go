package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/tools"
)

// A volume that must be attached, with the real attach-detach controller and external-attacher: the driver shows on the
// Node, the first attachment fails, lease and volume are killed meanwhile, and what the pods leave is detached in
// order.
func TestAttachedCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	driver := bed.CSIDriver(t, "attached.csi.test", storagev1.CSIDriverSpec{}, "--topology=attached.csi.test/zone=a",
		"--max-volumes=9")
	driver.Start()
	driver.Sidecars(tools.Attacher)
	kit.Eventually(t, "the driver in the CSINode", func() error {
		node, err := bed.Client.StorageV1().CSINodes().Get(t.Context(), kit.NodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, d := range node.Spec.Drivers {
			if d.Name == driver.Name && d.NodeID == kit.NodeName && *d.Allocatable.Count == 9 &&
				slices.Equal(d.TopologyKeys, []string{"attached.csi.test/zone"}) {
				return nil
			}
		}
		return fmt.Errorf("it has %+v", node.Spec.Drivers)
	})
	kit.Eventually(t, "the driver on the Node", func() error {
		n := bed.KubeNode(t)
		if ids := n.Annotations["csi.volume.kubernetes.io/nodeid"]; n.Labels["attached.csi.test/zone"] != "a" ||
			!strings.Contains(ids, fmt.Sprintf("%q:%q", driver.Name, kit.NodeName)) {
			return fmt.Errorf("it has the labels %v and the IDs %s", n.Labels, ids)
		}
		return nil
	})

	handle := driver.Provision(ns.Name)
	ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: driver.Name, VolumeHandle: handle, FSType: "ext4",
	}}, nil)
	const spec = `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`
	driver.Fault("ControllerPublishVolume", &csidriver.Fault{Code: codes.Internal, Message: "no room here"})
	ns.Apply(ns.Claim("data", "") + pod("one", spec))
	kit.Eventually(t, "the attacher's failure in kubelot why", func() error {
		out, err := why(t.Context(), ns, "one")
		if err == nil && !strings.Contains(out, "no room here") {
			err = errors.New(out)
		}
		return err
	})
	driver.Fault("ControllerPublishVolume", nil)
	bed.Signal(t, "lease", syscall.SIGKILL)
	one := ns.Running("one")
	name := corev1.UniqueVolumeName("kubernetes.io/csi/" + driver.Name + "^" + handle)
	lists := func() (used, attached bool) {
		status := bed.KubeNode(t).Status
		return slices.Contains(status.VolumesInUse, name), slices.ContainsFunc(status.VolumesAttached,
			func(v corev1.AttachedVolume) bool { return v.Name == name })
	}
	if used, attached := lists(); !used || !attached {
		t.Errorf("the pod runs, and its volume is in use: %v, attached: %v", used, attached)
	}
	ns.Exec(one, "app", "echo -n new > /data/file")

	killVolumeDaemon(t)
	began := time.Now()
	ns.Apply(pod("two", spec))
	two := ns.Running("two")
	t.Logf("a second pod has the volume after %s", time.Since(began).Round(time.Millisecond))
	ns.Equal(two, "app", "cat /data/file", "new")
	ns.Delete("one", -1)
	ns.Gone(one)
	if used, attached := lists(); !used || !attached {
		t.Errorf("a pod runs, and its volume is in use: %v, attached: %v", used, attached)
	}
	ns.Delete("two", -1)
	ns.Gone(two)
	kit.Eventually(t, "the volume is detached", func() error {
		list, err := bed.Client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, va := range list.Items {
			if va.Spec.Attacher == driver.Name {
				return fmt.Errorf("%s is there: %+v", va.Name, va.Status)
			}
		}
		if used, attached := lists(); used || attached {
			return fmt.Errorf("it is in use: %v, attached: %v", used, attached)
		}
		return nil
	})
	// Its directories go after the mount, which is what the Node's status waits for.
	kit.Eventually(t, "nothing is left of the staged volume", func() error {
		staged := filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name)
		left, err := filepath.Glob(filepath.Join(staged, "*"))
		for _, dir := range left {
			within, _ := filepath.Glob(filepath.Join(dir, "*"))
			err = errors.Join(err, fmt.Errorf("%s is there with %q", dir, within))
		}
		return err
	})
	calls := once(driver.Calls("ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume", "ControllerUnpublishVolume"))
	want := []string{
		"ControllerPublishVolume Internal", "ControllerPublishVolume OK", "NodeStageVolume OK", "NodePublishVolume OK",
		"NodeUnpublishVolume OK", "NodeUnstageVolume OK", "ControllerUnpublishVolume OK",
	}
	if !slices.Equal(calls, want) {
		t.Errorf("the driver was called %q; want %q", calls, want)
	}
}
