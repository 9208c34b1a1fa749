package parity

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/tools"
)

// TestVolumesTakenOver begins a pod with claims under the kubelet and goes on with kubelot, which starts nothing again,
// gives the pod's next container the same volumes, and frees all that the kubelet has mounted.
func TestVolumesTakenOver(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	disk := ns.Volume(kit.Local(kit.Disk(t)), ns.For("disk", corev1.PersistentVolumeFilesystem))
	ns.Volume(kit.Local(kit.Disk(t)), ns.For("raw", corev1.PersistentVolumeBlock))
	no := false
	driver := bed.CSIDriver(t, "taken.csi.test", storagev1.CSIDriverSpec{AttachRequired: &no}, "--no-attach")
	driver.Start()
	csi := func(claim string, mode corev1.PersistentVolumeMode) string {
		return ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver.Name, VolumeHandle: driver.Provision(ns.Name + "-" + claim),
		}}, ns.For(claim, mode))
	}
	csi("csi", corev1.PersistentVolumeFilesystem)
	csiRaw := csi("csi-raw", corev1.PersistentVolumeBlock)
	ns.Apply(ns.Claim("disk", "") + ns.Claim("raw", ", volumeMode: Block") + ns.Claim("csi", "") +
		ns.Claim("csi-raw", ", volumeMode: Block") + `
apiVersion: v1
kind: Pod
metadata: {name: taken}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: app
    image: busybox:1.36
    ` + forever + `
    volumeMounts:
    - {name: disk, mountPath: /disk}
    - {name: disk, mountPath: /sub, subPath: below}
    - {name: csi, mountPath: /csi}
    volumeDevices: [{name: raw, devicePath: /dev/raw}, {name: csi-raw, devicePath: /dev/csi}]
  volumes:
  - {name: disk, persistentVolumeClaim: {claimName: disk}}
  - {name: raw, persistentVolumeClaim: {claimName: raw}}
  - {name: csi, persistentVolumeClaim: {claimName: csi}}
  - {name: csi-raw, persistentVolumeClaim: {claimName: csi-raw}}
`)
	before := ns.Running("taken")
	ns.Exec(before, "app", "echo -n kept > /disk/file && echo -n sub > /sub/file && echo -n csi > /csi/file && "+
		"for d in raw csi; do echo -n $d | dd of=/dev/$d bs=512 conv=sync,fsync 2>/dev/null; done")

	bed.Node.Stop()
	if err := bed.StartNode(t.Context(), node.Kubelot); err != nil {
		t.Fatal(err)
	}
	const show = "cat /disk/file /sub/file /csi/file; for d in raw csi; do dd if=/dev/$d bs=3 count=1 2>/dev/null; done"
	const shows = "keptsubcsirawcsi"
	p := ns.Running("taken")
	// The Node is Ready still, by the kubelet's word.
	kit.Eventually(t, "kubelot's node API", func() error {
		got, err := ns.Try(p, "app", show)
		if err == nil && got != shows {
			err = errors.New("the container reads " + got)
		}
		return err
	})
	if was, is := kit.Status(before, "app").ContainerID, kit.Status(p, "app").ContainerID; was != is {
		t.Errorf("the container was %s and is %s", was, is)
	}
	ns.HeedsTERM(p, "app")
	_, _ = ns.Try(p, "app", "kill 1")
	p = ns.Wait("taken", "restarted", func(p *corev1.Pod) bool {
		return kit.Ready(p) && kit.Status(p, "app").RestartCount >= 1
	})
	ns.Equal(p, "app", show, shows)

	ns.Delete("taken", 1)
	ns.Gone(p)
	kit.Eventually(t, "the disks to be free", func() error {
		var err error
		if _, found := os.Stat(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/local-volume/mounts",
			disk)); found == nil {
			err = fmt.Errorf("%s is mounted", disk)
		}
		left, globErr := filepath.Glob(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name, "*"))
		more, moreErr := filepath.Glob(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi/volumeDevices", csiRaw))
		if left = append(left, more...); len(left) > 0 {
			err = errors.Join(err, fmt.Errorf("%q are left", left))
		}
		err = errors.Join(err, globErr, moreErr)
		return errors.Join(err, kit.DiskHeld(p), bed.Leftovers(t.Context(), p))
	})
}

// TestAttachedTakenOver has pods with attached volumes begin under either agent and end under the other one, which
// starts nothing again and frees what the first has mounted. kubelot asks the driver once more for what the kubelet has
// staged and published, as a kubelet does that starts.
func TestAttachedTakenOver(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	driver := bed.CSIDriver(t, "handed.csi.test", storagev1.CSIDriverSpec{})
	driver.Restages()
	driver.Start()
	driver.Sidecars(tools.Attacher)
	begin := func(name string) *corev1.Pod {
		t.Helper()
		ns.Volume(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver.Name, VolumeHandle: driver.Provision(name), FSType: "ext4",
		}}, ns.For(name, corev1.PersistentVolumeFilesystem))
		ns.Apply(ns.Claim(name, "") + "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n" +
			app(forever+", volumeMounts: [{name: data, mountPath: /data}]") +
			"  volumes: [{name: data, persistentVolumeClaim: {claimName: " + name + "}}]\n")
		p := ns.Running(name)
		ns.Exec(p, "app", "echo -n kept > /data/file")
		return p
	}
	handTo := func(agent node.Agent, registrations int, pods ...*corev1.Pod) {
		t.Helper()
		bed.Node.Stop()
		began := time.Now()
		if err := bed.StartNode(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		driver.Registered(registrations, began)
		for _, was := range pods {
			is := ns.Running(was.Name)
			if a, b := kit.Status(was, "app"), kit.Status(is, "app"); a.ContainerID != b.ContainerID {
				t.Errorf("under %s, %s is %+v, and was %+v", agent, was.Name, b, a)
			}
			ns.Equal(is, "app", "cat /data/file", "kept")
		}
	}
	end := func(p *corev1.Pod, left int) {
		t.Helper()
		ns.Delete(p.Name, 1)
		ns.Gone(p)
		kit.Eventually(t, "the volume to be detached", func() error {
			list, err := bed.Client.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
			if err == nil && len(list.Items) != left {
				err = fmt.Errorf("%d volumes are attached", len(list.Items))
			}
			return err
		})
	}

	first, second := begin("first"), begin("second")
	handTo(node.Kubelot, 2, first, second)
	third := begin("third")
	end(first, 2)
	for method, want := range map[string]struct{ least, most int }{
		"NodeStageVolume": {3, 5}, "NodePublishVolume": {3, 5}, "NodeUnpublishVolume": {1, 1}, "NodeUnstageVolume": {1, 1},
		"ControllerUnpublishVolume": {1, 1},
	} {
		if got := driver.Calls(method); len(got) < want.least || len(got) > want.most {
			t.Errorf("the driver was called %q; want %d to %d calls", got, want.least, want.most)
		}
	}
	handTo(node.Kubelet, 3, second, third)
	end(second, 1)
	end(third, 0)
	kit.Eventually(t, "the directories to be gone", func() error {
		staged, err := filepath.Glob(filepath.Join(bed.Node.RootDir, "plugins/kubernetes.io/csi", driver.Name, "*"))
		if err == nil && len(staged) > 0 {
			err = fmt.Errorf("%q are left", staged)
		}
		return err
	})
}

// TestPullRecordsTakenOver has either agent bring images, and asks the other for them: who has no credentials for what
// a secret has brought gets nothing, and the others need no registry.
func TestPullRecordsTakenOver(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	bed.Config = config
	s := newStage(t, bed)
	s.ns = bed.Namespace(t)
	for name, secret := range map[string]string{"right": "right", "copy": "right", "wrong": "wrong"} {
		s.ns.Apply(s.pullSecret(name, pullSecrets[secret]))
	}
	enter := func(name, spec string) {
		s.ns.Apply(s.filled("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name +
			"}\nspec:\n  terminationGracePeriodSeconds: 1\n" + spec))
	}
	with := func(ref, secret string) string {
		return image(ref, never) + "  imagePullSecrets: [{name: " + secret + "}]\n"
	}
	brought := ""
	for _, turn := range []struct {
		agent        node.Agent
		name, brings string
	}{{node.Kubelet, "first", "right"}, {node.Kubelot, "second", "both"}, {node.Kubelet, "third", "old"}} {
		if err := bed.StartNode(t.Context(), turn.agent); err != nil {
			t.Fatal(err)
		}
		if brought != "" {
			enter(turn.name+"-none", image(brought, never))
			enter(turn.name+"-wrong", with(brought, "wrong"))
			enter(turn.name+"-same", with(brought, "right"))
			enter(turn.name+"-copy", with(brought, "copy"))
			enter(turn.name+"-open", image("$OPEN/pulled:1", never))
			for _, name := range []string{"-same", "-copy", "-open"} {
				s.ns.Running(turn.name + name)
			}
			for _, name := range []string{"-none", "-wrong"} {
				s.ns.Waiting(turn.name+name, "app", "ErrImageNeverPull")
			}
		}
		brought = "$PRIVATE/" + turn.brings + ":1"
		enter(turn.name, withSecret(brought, "{name: right}"))
		enter(turn.name+"-opens", image("$OPEN/pulled:1", ""))
		s.ns.Running(turn.name)
		s.ns.Running(turn.name + "-opens")
		bed.Node.Stop()
	}
}
