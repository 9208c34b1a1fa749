package vm

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

const (
	iscsiName = "iqn.2026-01.dev.kubelot:disk"
	portal    = "127.0.0.1:3260"
)

// TestISCSI has pods use disks of a target in the machine itself: one names the disk, and logs in with CHAP, the next
// have it behind a claim, as a filesystem and as a device. After the last one nobody is logged in.
func TestISCSI(t *testing.T) {
	notQuick(t)
	serveISCSI(t)
	ns := bed.Namespace(t)
	ns.Apply(`
apiVersion: v1
kind: Secret
metadata: {name: chap}
type: kubernetes.io/iscsi-chap
stringData: {node.session.auth.username: user, node.session.auth.password: password1234}
`)
	ns.Apply(dataPod("writer", forever, fmt.Sprintf(`iscsi: {targetPortal: %q, iqn: %q, lun: 1, fsType: ext4, `+
		`chapAuthSession: true, secretRef: {name: chap}}`, portal, iscsiName)))
	writer := ns.Running("writer")
	inPod(t, ns, "writer", "echo hello >/data/greeting")
	if got := in(t, "iscsiadm -m session"); !strings.Contains(got, iscsiName) {
		t.Errorf("the sessions are %s", got)
	}
	name := corev1.UniqueVolumeName("kubernetes.io/iscsi/" + portal + ":" + iscsiName + ":1")
	if n, err := node.KubeNode(t.Context()); err != nil || !slices.Contains(n.Status.VolumesInUse, name) {
		t.Errorf("the Node's volumes in use lack %s: %v, %v", name, n.Status.VolumesInUse, err)
	}
	// The daemon that comes takes over what is mounted, and unmounts it.
	if _, err := node.Systemctl(t.Context(), "restart kubelot-volume"); err != nil {
		t.Fatal(err)
	}
	ns.Delete("writer", 1)
	ns.Gone(writer)
	loggedOut(t)

	reader := claimISCSI(t, ns, "reader", 1, corev1.PersistentVolumeFilesystem)
	if got := inPod(t, ns, "reader", "cat /data/greeting"); strings.TrimSpace(got) != "hello" {
		t.Errorf("the reader reads %q", got)
	}
	device := claimISCSI(t, ns, "device", 2, corev1.PersistentVolumeBlock)
	inPod(t, ns, "device", "echo as it is >/dev/disk && sync")
	if got := in(t, "head -c 8 /var/tmp/iscsi-2"); got != "as it is" {
		t.Errorf("the device's file begins with %q", got)
	}
	for _, p := range []*corev1.Pod{reader, device} {
		ns.Delete(p.Name, 1)
		ns.Gone(p)
	}
	loggedOut(t)
	eventually(t, "the global mounts to go", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "find /var/lib/kubelet/plugins/kubernetes.io/iscsi -mindepth 2 ! -path "+
			"'*/volumeDevices' 2>/dev/null; grep /iscsi/ /proc/mounts; true")
		if err == nil && out != "" {
			err = fmt.Errorf("there is\n%s", out)
		}
		return err
	})
}

// serveISCSI starts a target with two disks, which wants CHAP, and the client's daemon.
func serveISCSI(t *testing.T) {
	t.Helper()
	const target = "tgtadm --lld iscsi --mode target --tid 1 --op "
	in(t, strings.Join([]string{
		"modprobe iscsi_tcp && systemctl start tgt iscsid",
		"truncate -s 64M /var/tmp/iscsi-1 /var/tmp/iscsi-2",
		target + "new -T " + iscsiName,
		"tgtadm --lld iscsi --mode logicalunit --op new --tid 1 --lun 1 -b /var/tmp/iscsi-1",
		"tgtadm --lld iscsi --mode logicalunit --op new --tid 1 --lun 2 -b /var/tmp/iscsi-2",
		"tgtadm --lld iscsi --mode account --op new --user user --password password1234",
		"tgtadm --lld iscsi --mode account --op bind --tid 1 --user user",
		target + "bind -I ALL",
	}, " && "))
	undo(t, "iscsiadm -m node --logout || true; systemctl stop iscsid.socket iscsid tgt")
}

// claimISCSI starts a pod that has a disk behind a claim.
func claimISCSI(t *testing.T, ns *kit.Namespace, name string, lun int32, mode corev1.PersistentVolumeMode) *corev1.Pod {
	t.Helper()
	source := &corev1.ISCSIPersistentVolumeSource{
		TargetPortal: portal, IQN: iscsiName, Lun: lun, FSType: "ext4", SessionCHAPAuth: true,
		SecretRef: &corev1.SecretReference{Name: "chap", Namespace: ns.Name},
	}
	ns.Volume(corev1.PersistentVolumeSource{ISCSI: source}, func(s *corev1.PersistentVolumeSpec) {
		ns.For(name, mode)(s)
		s.NodeAffinity = nil
	})
	more, claimed := "", "persistentVolumeClaim: {claimName: "+name+"}"
	manifest := dataPod(name, forever, claimed)
	if mode == corev1.PersistentVolumeBlock {
		more = ", volumeMode: Block"
		manifest = strings.Replace(manifest, "volumeMounts: [{name: data, mountPath: /data}]",
			"volumeDevices: [{name: data, devicePath: /dev/disk}]", 1)
	}
	ns.Apply(ns.Claim(name, more) + manifest)
	return ns.Running(name)
}

// loggedOut waits until the machine has no session with a target.
func loggedOut(t *testing.T) {
	t.Helper()
	eventually(t, "the session to end", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "ls /sys/class/iscsi_session")
		if err == nil && out != "" {
			err = fmt.Errorf("there is %s", out)
		}
		return err
	})
}
