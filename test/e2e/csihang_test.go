package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
)

// A driver hangs: kubelot why names it, the call and since when, and what to do helps. Meanwhile its other volume and
// that of another driver are mounted.
func TestHangingCSI(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	no := false
	hangs := bed.CSIDriver(t, "hangs.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	other := bed.CSIDriver(t, "other.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach", "--no-stage")
	hangs.Start()
	other.Start()
	const spec = `
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: CLAIM}}]
`
	apply := func(name string, driver *kit.Driver) {
		ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name + "-" + name), FSType: "ext4",
		}}, ns.For(name, corev1.PersistentVolumeFilesystem))
		ns.Apply(ns.Claim(name, "") + pod(name, strings.ReplaceAll(spec, "CLAIM", name)))
	}
	hangs.Fault("NodeStageVolume", &csidriver.Fault{Times: 1, Hang: true})
	apply("held", hangs)
	hangs.Called("NodeStageVolume", 0)
	apply("same", hangs)
	apply("another", other)
	ns.Running("same")
	ns.Running("another")
	says(t, ns, "held", "the CSI driver "+hangs.Name+" has not answered NodeStageVolume since", "the driver's answer")
	hangs.Kill()
	hangs.Start()
	held := ns.Running("held")

	hangs.Fault("NodeUnpublishVolume", &csidriver.Fault{Times: 1, Hang: true})
	ns.Delete("held", -1)
	hangs.Called("NodeUnpublishVolume", 0)
	says(t, ns, "held", "the CSI driver "+hangs.Name+" has not answered NodeUnpublishVolume since")
	hangs.Kill()
	hangs.Start()
	ns.Gone(held)

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
