package persistent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	mount "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/selinux"
)

// noting mounts without the labels and notes them by mount point: the kernel of the tests need not have SELinux.
type noting struct {
	mount.Interface
	labels map[string]string
}

func (n noting) MountSensitive(source, target, fsType string, options, sensitive []string) error {
	n.labels[target] = ""
	options = slices.DeleteFunc(slices.Clone(options), func(o string) bool {
		label, is := strings.CutPrefix(o, "context=")
		if is {
			n.labels[target] = strings.Trim(label, `"`)
		}
		return is
	})
	return n.Interface.MountSensitive(source, target, fsType, options, sensitive)
}

func (n noting) MountSensitiveWithoutSystemd(source, target, fsType string, options, sensitive []string) error {
	n.labels[target] = n.labels[source]
	return n.Interface.MountSensitiveWithoutSystemd(source, target, fsType, options, sensitive)
}

// hasLabels has the node mount disks with labels, as another start of the daemon.
func (b *bed) hasLabels(c *cluster, noted map[string]string, everyMode bool) {
	label := func(o *corev1.SELinuxOptions) (string, error) { return "u:r:t:" + o.Level, nil }
	c.labels = selinux.NewBook(label, everyMode)
	mounter := noting{mount.NewWithoutSystemd(""), noted}
	for _, k := range b.kinds {
		if r, ok := k.Plugin.(*remote); ok {
			r.local.mounter = mount.NewSafeFormatAndMount(mounter, utilexec.New())
			r.labelAt = func(path string) (string, error) { return noted[path], nil }
		}
	}
}

// as is the request of the pod whose container wants the level.
func (b *bed) as(uid, level string) plugin.Request {
	r := b.request(uid)
	r.Pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{
		SELinuxOptions: &corev1.SELinuxOptions{Level: level},
	}
	return r
}

// labeled mounts the volume and expects the label; empty for none.
func (b *bed) labeled(r plugin.Request, noted map[string]string, want string) plugin.Result {
	b.t.Helper()
	result := b.mount(r)
	if got := noted[result.HostPath]; got != want || result.SELinuxRelabel != (want == "") {
		b.t.Errorf("pod %s has %+v with the label %q; want %q", r.Pod.UID, result, got, want)
	}
	return result
}

// The access modes that a disk is mounted with a label for depend on the gate.
func TestRemoteDiskLabel(t *testing.T) {
	for _, c := range []struct {
		everyMode bool
		mode      corev1.PersistentVolumeAccessMode
		want      string
	}{
		{false, corev1.ReadWriteOncePod, "u:r:t:s0:c1"},
		{false, corev1.ReadWriteOnce, ""},
		{true, corev1.ReadWriteOnce, "u:r:t:s0:c1"},
	} {
		b, cluster, fake := remoteBed(t)
		b.volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{c.mode}
		noted := map[string]string{}
		b.hasLabels(cluster, noted, c.everyMode)
		r := b.as("u-1", "s0:c1")
		result := b.labeled(r, noted, c.want)
		b.again(cluster, fake)
		r.Known = result
		if again := b.mount(r); untimed(again) != untimed(result) {
			t.Errorf("after a restart: %+v", again)
		}
		b.unmount(r, result)
		b.ended(cluster, fake)
	}
}

// Pods share a disk if they want the same label. One that wants another gets it when those have gone.
func TestSharedRemoteDiskLabel(t *testing.T) {
	b, c, fake := remoteBed(t)
	b.volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	noted := map[string]string{}
	b.hasLabels(c, noted, true)
	one, two, three := b.as("u-1", "s0:c1"), b.as("u-2", "s0:c1"), b.as("u-3", "s0:c3")
	first := b.labeled(one, noted, "u:r:t:s0:c1")
	second := b.labeled(two, noted, "u:r:t:s0:c1")
	b.fails(three, "FailedMount Unable to attach or mount volumes: unmounted volumes=[vol], unattached volumes=[], "+
		`failed to process volumes=[vol]: conflicting SELinux labels of volume pv: "u:r:t:s0:c1" and "u:r:t:s0:c3": `+
		"give the pods that share it on a node the same seLinuxOptions, or all of them seLinuxChangePolicy: Recursive")
	b.unmount(one, first)
	// The next process knows of no pod, but of what is mounted.
	b.again(c, fake)
	b.hasLabels(c, noted, true)
	b.fails(three, `FailedMount MountVolume.MountDevice failed for volume "pv" : waiting for unmount of volume "`+testName+
		`", because it is already mounted to a different pod with a different SELinux label`)
	if !isMount(t, second.HostPath) {
		t.Error("the pod has lost its volume")
	}
	b.unmount(two, second)
	third := b.labeled(three, noted, "u:r:t:s0:c3")
	b.unmount(three, third)
	b.ended(c, fake)
}

// A disk that the pod names itself gets no label. One that a kubelet has mounted with a label keeps it.
func TestLabelOfThePodsOwnDisk(t *testing.T) {
	b, c, fake := remoteBed(t)
	noted := map[string]string{}
	b.hasLabels(c, noted, true)
	r := b.as("u-1", "s0:c1")
	r.Volume.VolumeSource = corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{
		TargetPortal: "10.0.0.1", IQN: testIQN, FSType: "ext4",
	}}
	result := b.labeled(r, noted, "")
	noted[result.HostPath] = "u:r:t:s0:c9"
	b.labeled(r, noted, "u:r:t:s0:c9")
	b.unmount(r, result)
	b.ended(c, fake)
}

func TestFabricDiskLabel(t *testing.T) {
	f := fabricBed(t)
	f.volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteOnce}
	noted := map[string]string{}
	f.hasLabels(f.c, noted, true)
	r := f.as("u-1", "s0:c1,c2")
	f.unmount(r, f.labeled(r, noted, "u:r:t:s0:c1,c2"))
	f.over()
}
