package vm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/csidriver"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/vm/guest"
)

const (
	csiName  = "reboot.csi.test"
	csiState = "/var/lib/csidriver"
	// csiUnit starts the driver at each boot, whether kubelot is up yet or not.
	csiUnit = `[Unit]
StartLimitIntervalSec=0
[Service]
ExecStartPre=modprobe loop
ExecStart=/usr/local/bin/csidriver --name ` + csiName + ` --node-id ` + guest.Name + ` --no-attach \
  --state ` + csiState + ` --socket ` + csiState + `/csi.sock --registry /var/lib/kubelet/plugins_registry
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
`
)

// TestRebootCSI reboots the machine while a pod has the volume of a CSI driver. The pod comes back with its data: the
// volume was staged and published once more, and nothing is mounted twice. Once the pod has gone nothing is left of it.
func TestRebootCSI(t *testing.T) {
	notQuick(t)
	serveCSI(t)
	ns := bed.Namespace(t)
	ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
		Driver: csiName, VolumeHandle: "kept", FSType: "ext4",
	}}, func(s *corev1.PersistentVolumeSpec) {
		ns.For("kept", corev1.PersistentVolumeFilesystem)(s)
		s.NodeAffinity = nil
	})
	ns.Apply(ns.Claim("kept", "") + dataPod("keeper", forever, "persistentVolumeClaim: {claimName: kept}"))
	before := ns.Running("keeper")
	inPod(t, ns, "keeper", "echo hello >/data/greeting && sync")
	mountedOnce(t, before)
	first := csiCalls(t)
	called(t, first, "NodeStageVolume", "NodePublishVolume")

	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := ns.Wait("keeper", "another container", func(p *corev1.Pod) bool {
		return kit.Ready(p) && p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
	})
	if p.UID != before.UID {
		t.Errorf("the pod has UID %s, before the reboot %s", p.UID, before.UID)
	}
	if got := inPod(t, ns, "keeper", "cat /data/greeting"); strings.TrimSpace(got) != "hello" {
		t.Errorf("after the reboot the pod reads %q", got)
	}
	mountedOnce(t, p)
	called(t, csiCalls(t)[len(first):], "NodeStageVolume", "NodePublishVolume")

	ns.Delete("keeper", 1)
	ns.Gone(p)
	eventually(t, "all of the volume to go", func(ctx context.Context) error {
		// The driver's own directory stays.
		out, err := node.Machine.Run(ctx, csiMounts+"; find /var/lib/kubelet/plugins/kubernetes.io/csi -mindepth 2; "+
			"losetup --noheadings --output BACK-FILE | grep "+csiState+"; ls -d /var/lib/kubelet/pods/"+string(p.UID)+
			" 2>/dev/null; true")
		if err == nil && out != "" {
			err = fmt.Errorf("there is\n%s", out)
		}
		return err
	})
	called(t, csiCalls(t)[len(first):], "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume",
		"NodeUnstageVolume")
}

// serveCSI has systemd run the driver, with the volume "kept": its record and its image.
func serveCSI(t *testing.T) {
	t.Helper()
	program, err := node.Tools.EnsureCSIDriver(t.Context())
	if err == nil {
		err = node.Machine.Copy(t.Context(), program, "/usr/local/bin/csidriver")
	}
	if err == nil {
		err = node.Machine.Write(t.Context(), "/etc/systemd/system/csidriver.service", 0o644, []byte(csiUnit))
	}
	if err != nil {
		t.Fatal(err)
	}
	undo(t, "systemctl disable -q --now csidriver; rm -rf "+csiState+" /usr/local/bin/csidriver "+
		"/etc/systemd/system/csidriver.service /var/lib/kubelet/plugins_registry/"+csiName+"-reg.sock; "+
		"systemctl daemon-reload")
	in(t, "mkdir -p "+csiState+"/volumes && cd "+csiState+"/volumes && truncate -s 64M kept.img && "+
		`echo '{"id": "kept", "name": "kept", "bytes": 67108864}' >kept.json && `+
		"systemctl daemon-reload && systemctl enable -q --now csidriver")
	no := false
	drivers := bed.Client.StorageV1().CSIDrivers()
	if _, err := drivers.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: csiName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drivers.Delete(detached(t), csiName, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// csiMounts lists where volumes of drivers are mounted in the machine, each as often as it is.
const csiMounts = "findmnt --list --noheadings --output TARGET | grep -F -e kubernetes.io/csi/ -e kubernetes.io~csi/"

// mountedOnce checks that the volume is mounted where it is staged and where the pod has it.
func mountedOnce(t *testing.T, p *corev1.Pod) {
	t.Helper()
	points := strings.Fields(in(t, csiMounts))
	staged, published := "/var/lib/kubelet/plugins/kubernetes.io/csi/"+csiName+"/",
		"/var/lib/kubelet/pods/"+string(p.UID)+"/volumes/kubernetes.io~csi/"
	slices.Sort(points)
	if len(points) != 2 || !strings.HasPrefix(points[0], staged) || !strings.HasPrefix(points[1], published) {
		t.Errorf("mounted are\n%s\nwant one mount below %s and one below %s", strings.Join(points, "\n"), staged, published)
	}
}

// csiCalls are the calls of the driver so far.
func csiCalls(t *testing.T) []csidriver.Call {
	t.Helper()
	state := t.TempDir()
	log := in(t, "cat "+csidriver.CallLog(csiState))
	if err := os.WriteFile(csidriver.CallLog(state), []byte(log+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := csidriver.ReadCalls(state)
	if err != nil {
		t.Fatal(err)
	}
	return calls
}

// called checks the calls that changed the volume, which may not have overlapped.
func called(t *testing.T, calls []csidriver.Call, want ...string) {
	t.Helper()
	var got []string
	for _, c := range calls {
		switch c.Method {
		case "NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume":
			if !c.End && !c.Gone {
				got = append(got, c.Method)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the driver was called %q, want %q", got, want)
	}
	for _, fault := range csidriver.Judge(calls, csidriver.Rules{Stages: true}) {
		t.Error(fault)
	}
}
