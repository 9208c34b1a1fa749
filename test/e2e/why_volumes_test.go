package e2e

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// csiDriver makes the CSIDriver object of a driver that never comes.
func csiDriver(t *testing.T, name string, modes ...storagev1.VolumeLifecycleMode) {
	t.Helper()
	drivers := bed.Client.StorageV1().CSIDrivers()
	if _, err := drivers.Create(t.Context(), &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: modes},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = drivers.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

// Volumes of the pod's own spec that can't be mounted.
func TestWhyOwnVolumes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	absent, persistent := ns.Name+"-absent.example.com", ns.Name+"-persistent.example.com"
	csiDriver(t, absent, storagev1.VolumeLifecycleEphemeral)
	csiDriver(t, persistent, storagev1.VolumeLifecyclePersistent)
	mount := func(source string) string {
		return container("volumeMounts: [{name: v, mountPath: /v}]", "  volumes: [{name: v, "+source+"}]\n")
	}
	typed := func(path, kind string) string { return mount("hostPath: {path: " + path + ", type: " + kind + "}") }
	ns.Apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}\n")
	ns.Apply(pod("token", "  schedulingGates: [{name: example.com/wait}]\n  serviceAccountName: robot\n"+
		container("", "")))
	ns.Kubectl("delete", "serviceaccount", "robot")
	ns.Kubectl("patch", "pod", "token", "--type=merge", "-p", `{"spec":{"schedulingGates":null}}`)
	explained(t, ns, []stuck{
		{"directory", typed("/etc/passwd", "Directory"), []string{`"/etc/passwd" on this node is not a directory`}},
		{"file", typed("/etc", "File"), []string{`"/etc" on this node is not a file`}},
		{"absent", typed("/no/such", "Directory"), []string{`"/no/such" isn't on this node, and must be a directory`}},
		{"block", typed("/dev/null", "BlockDevice"), []string{`"/dev/null" on this node is not a block device`}},
		{"char", typed("/etc/passwd", "CharDevice"), []string{`"/etc/passwd" on this node is not a character device`}},
		{"projected", mount("projected: {sources: [{configMap: {name: absent}}]}"), []string{
			`the ConfigMap "absent" doesn't exist in the namespace $NS`,
		}},
		{"unregistered", mount("csi: {driver: " + absent + "}"), []string{
			`the CSI driver "` + absent + `" isn't registered on this node`, "waits for: the driver's DaemonSet on this node",
		}},
		{"mode", mount("csi: {driver: " + persistent + "}"), []string{
			`the CSI driver "` + persistent + `" makes no volumes of the mode Ephemeral, only ["Persistent"]`,
		}},
		{"unsupported", mount("flexVolume: {driver: example.com/disk}"), []string{
			"kubelot doesn't mount volumes of this kind",
		}},
		{"hugepages", mount("emptyDir: {medium: HugePages-2Mi}"), []string{
			"its medium is HugePages-2Mi, but no container requests huge pages of this size",
		}},
	})
	says(t, ns, "token", "volume kube-api-access-", `the API server gives no token of the service account "robot"`,
		"-> kubectl get serviceaccount robot -n "+ns.Name)
}

// Claims whose volumes can't be mounted. The scheduler, which would keep the pods, isn't asked.
func TestWhyClaimedVolumes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	of := func(claim, use string) string {
		return onThisNode + container(use, "  volumes: [{name: data, persistentVolumeClaim: {claimName: "+claim+"}}]\n")
	}
	const mounted = "volumeMounts: [{name: data, mountPath: /data}]"
	alone := func(s *corev1.PersistentVolumeSpec) {
		ns.For("alone", corev1.PersistentVolumeFilesystem)(s)
		s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}
	elsewhere := func(s *corev1.PersistentVolumeSpec) {
		ns.For("elsewhere", corev1.PersistentVolumeFilesystem)(s)
		s.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"another"}
	}
	strange := kit.Local(kit.Disk(t))
	kind := "nosuchfs"
	strange.Local.FSType = &kind
	ns.Volume(kit.Local(t.TempDir()), ns.For("block", corev1.PersistentVolumeBlock))
	ns.Volume(kit.Local(t.TempDir()), elsewhere)
	ns.Volume(kit.Local(t.TempDir()), alone)
	ns.Volume(strange, ns.For("strange", corev1.PersistentVolumeFilesystem))
	ns.Volume(kit.Local("/no/such/directory"), ns.For("away", corev1.PersistentVolumeFilesystem))
	ns.Apply(ns.Claim("block", ", volumeMode: Block") + ns.Claim("elsewhere", "") + ns.Claim("strange", "") +
		ns.Claim("away", "") + ns.Claim("leaving", ""))
	ns.Apply("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: lost, annotations: " +
		"{pv.kubernetes.io/bind-completed: 'yes'}}\nspec: {storageClassName: none, volumeName: no-such-volume, " +
		"accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n---\n" +
		"apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: alone}\nspec: {storageClassName: " + ns.Name +
		", accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Mi}}}\n")
	ns.Kubectl("patch", "persistentvolumeclaim", "leaving", "--type=merge", "-p",
		`{"metadata":{"finalizers":["example.com/hold"]}}`)
	ns.Kubectl("delete", "persistentvolumeclaim", "leaving", "--wait=false")
	t.Cleanup(func() {
		_, _ = ns.TryKubectl("patch", "persistentvolumeclaim", "leaving", "--type=merge", "-p",
			`{"metadata":{"finalizers":null}}`)
	})
	ns.Apply(pod("user", of("alone", mounted)))
	ns.Running("user")
	explained(t, ns, []stuck{
		{"block", of("block", mounted), []string{"it is of the mode Block, and the spec has it in volumeMounts"}},
		{"elsewhere", of("elsewhere", mounted), []string{"it can't be used on this node: its nodeAffinity names others"}},
		{"strange", of("strange", mounted), []string{
			"it has no file system yet, and this node has no mkfs.nosuchfs to make one",
		}},
		{"away", of("away", mounted), []string{
			`the path "/no/such/directory" of its PersistentVolume isn't on this node`,
		}},
		{"leaving", of("leaving", mounted), []string{
			"its claim is being deleted", "-> delete the pod and create the claim anew",
		}},
		{"lost", of("lost", mounted), []string{`its claim "lost" isn't bound to a volume`}},
		{"second", of("alone", mounted), []string{"another pod uses it, and only one may"}},
	})
}
