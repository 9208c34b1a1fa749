package persistent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

const unable = "FailedMount Unable to attach or mount volumes: unmounted volumes=[vol], unattached volumes=[], " +
	"failed to process volumes=[vol]: "

func TestClaimsThatCannotBeUsed(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		spoil func(*bed)
		want  string
	}{
		"no claim": {
			func(b *bed) {
				b.claim = nil
			},
			unable +
				`error processing PVC shop/data: failed to fetch PVC from API server: persistentvolumeclaims "data" not found`,
		},
		"pending": {func(b *bed) {
			b.claim.Status.Phase = corev1.ClaimPending
		}, unable + "error processing PVC shop/data: PVC is not bound"},
		"lost": {func(b *bed) {
			b.claim.Status.Phase = corev1.ClaimLost
		}, unable + "error processing PVC shop/data: PVC is not bound"},
		"no name": {func(b *bed) {
			b.claim.Spec.VolumeName = ""
		}, unable + "error processing PVC shop/data: PVC has empty pvc.Spec.VolumeName"},
		"deleted": {func(b *bed) {
			b.claim.DeletionTimestamp = &now
		}, unable + "error processing PVC shop/data: PVC is being deleted"},
		"no volume": {func(b *bed) { b.volume = nil }, unable +
			`error processing PVC shop/data: failed to fetch PV pv from API server: persistentvolumes "pv" not found`},
		"volume not bound": {func(b *bed) { b.volume.Spec.ClaimRef = nil }, unable +
			"error processing PVC shop/data: " +
			"found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet " +
			"bound to the claim"},
		"volume of another claim": {func(b *bed) { b.volume.Spec.ClaimRef.UID = "c-2" }, unable +
			"error processing PVC shop/data: " +
			"found PV object pv but its pv.Spec.ClaimRef.UID c-2 does not point to claim.UID c-1"},
		"name that leads elsewhere": {func(b *bed) { b.volume.Name = "../pv" }, unable +
			`error processing PVC shop/data: the name of PV object "../pv" can't be that of a directory`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, localAt(t.TempDir()))
			r := b.request("u-1")
			c.spoil(b)
			b.fails(r, c.want)
			b.clean()
		})
	}
}

func TestWrongUse(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	r := b.request("u-1")
	b.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock)
	b.fails(r, unable+"volume vol has volumeMode Block, but is specified in volumeMounts")
	r = b.request("u-1")
	b.volume.Spec.VolumeMode = nil
	b.fails(r, unable+"volume vol has volumeMode Filesystem, but is specified in volumeDevices")
}

func TestClaimBeingDeletedStaysWithItsPods(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	b.claim.DeletionTimestamp, b.claim.Finalizers = ptr(metav1.Now()), []string{protection}
	b.mount(b.request("u-1"))
}

func TestRefusalsOfAnAuthorizerThatIsBehindAreSatOut(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	b.refuse = 3
	b.mount(b.request("u-1"))
}

func TestEphemeralVolume(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	b.claim.Name = "pod-u-1-vol"
	r := b.request("u-1")
	r.Volume.VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	b.fails(r, unable+"PVC shop/pod-u-1-vol was not created for pod shop/pod-u-1 (pod is not owner)")
	b.claim.OwnerReferences = []metav1.OwnerReference{{UID: r.Pod.UID, Controller: ptr(true)}}
	result := b.mount(r)
	b.unmount(r, result)
	b.clean()
}

func TestVolumesThatCannotBeMounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	block := func(b *bed) { b.volume.Spec.VolumeMode = ptr(corev1.PersistentVolumeBlock) }
	for name, c := range map[string]struct {
		source corev1.PersistentVolumeSource
		change func(*bed)
		want   string
	}{
		"no path": {
			localAt(""), nil,
			`FailedMount MountVolume.NewMounter initialization failed for volume "pv" : local volume source is nil or local path is not set`,
		},
		"missing path": {
			localAt("/no/such/dir"), nil,
			`FailedMount MountVolume.NewMounter initialization failed for volume "pv" : path "/no/such/dir" does not exist`,
		},
		"file": {
			localAt(file), nil,
			`FailedMount MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported`,
		},
		"device": {
			localAt("/dev/null"), nil,
			`FailedMount MountVolume.NewMounter initialization failed for volume "pv" : only directory and block device are supported`,
		},
		"steps up": {
			localAt("/tmp/../etc"), nil,
			`FailedMount MountVolume.SetUp failed for volume "pv" : invalid path: /tmp/../etc must not contain '..'`,
		},
		"other node": {localAt("/tmp"), func(b *bed) {
			b.volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
						Values: []string{"other"},
					}},
				}},
			}}
		}, `FailedMount MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"one pod only": {
			localAt("/tmp"), func(b *bed) {
				b.volume.Spec.AccessModes, b.taken["pv"] = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}, true
			},
			`FailedMount MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod access mode and is already in use by another pod`,
		},
		"hostPath that steps up": {
			corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/a/../b"}},
			nil,
			"FailedMount MountVolume.SetUp failed for volume \"pv\" : invalid HostPath `/a/../b`: must not contain '..'",
		},
		"hostPath with options": {
			corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}},
			func(b *bed) {
				b.volume.Spec.MountOptions = []string{"ro"}
			},
			`FailedMount MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not supported for this volume type`,
		},
		"hostPath as a device": {
			corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp"}},
			block,
			`FailedMapVolume MapVolume.SetUpDevice failed for volume "pv" : hostPath with volumeMode Block of persistentVolumeClaim volume "vol": ` + plugin.ErrUnsupported.Error(),
		},
		"csi": {
			corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example"}},
			nil,
			`FailedMount MountVolume.SetUp failed for volume "pv" : csi driver "disks.example" of persistentVolumeClaim volume "vol": ` + plugin.ErrUnsupported.Error(),
		},
		"flexVolume": {
			corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{}},
			nil,
			`FailedMount MountVolume.SetUp failed for volume "pv" : flexVolume of persistentVolumeClaim volume "vol": ` +
				plugin.ErrUnsupported.Error(),
		},
		"no source": {
			corev1.PersistentVolumeSource{},
			nil,
			`FailedMount MountVolume.SetUp failed for volume "pv" : a persistent volume without a source of persistentVolumeClaim volume "vol": ` + plugin.ErrUnsupported.Error(),
		},
		"a directory as a device": {
			localAt("/tmp"), block,
			`FailedMapVolume MapVolume.MapBlockVolume failed for volume "pv" : /tmp is a directory, and the volume's volumeMode is Block: it must be a block device`,
		},
		"a missing device": {
			localAt("/dev/no-such-disk"), block,
			`FailedMapVolume MapVolume.EvalHostSymlinks failed for volume "pv" : lstat /dev/no-such-disk: no such file or directory`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, c.source)
			if c.change != nil {
				c.change(b)
			}
			b.fails(b.request("u-1"), c.want)
			b.clean()
		})
	}
}

func TestHostPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made")
	b := newBed(t, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
		Path: dir,
		Type: ptr(corev1.HostPathDirectoryOrCreate),
	}})
	b.volume.Annotations = map[string]string{groupAnnotation: "1234"}
	r := b.request("u-1")
	r.Volume.PersistentVolumeClaim.ReadOnly = true
	result := b.mount(r)
	if result.HostPath != dir || !result.ReadOnly || result.SELinuxRelabel || result.PersistentVolume != "pv" ||
		*result.SupplementalGroup != 1234 {
		t.Errorf("result %+v", result)
	}
	r.Known, b.asked = result, 0
	if again := b.mount(r); again != result || b.asked > 0 {
		t.Errorf("what is known is asked for %d times: %+v", b.asked, again)
	}
	r = b.request("u-2")
	r.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: []int64{1234}}
	if result := b.mount(r); result.SupplementalGroup != nil {
		t.Errorf("the pod has the group %d already", *result.SupplementalGroup)
	}
	if _, _, ok := b.kinds.ByPath(filepath.Join(b.root, "pods/u-1"), dir); ok {
		t.Error("somebody would unmount a host path")
	}
	b.clean()
}

func TestWhatEndsIsNotMounted(t *testing.T) {
	b := newBed(t, localAt(t.TempDir()))
	r := b.request("u-1")
	r.Ending = true
	b.fails(r, plugin.ErrNotMounted.Error())
	r.Ending = false
	r.Known = b.mount(r)
	r.Ending = true
	want := r.Known
	want.RefreshAt, want.LookAt = time.Time{}, time.Time{}
	// A time that has passed would have it mounted again at once, and again, until the pod has ended.
	r.Known.RefreshAt = time.Now().Add(-time.Second)
	r.Known.LookAt = r.Known.RefreshAt
	if result := b.mount(r); result != want {
		t.Errorf("result %+v", result)
	}
}

func TestMountOptions(t *testing.T) {
	pv := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{MountOptions: []string{"noexec", "", "nodev"}}}
	if got := strings.Join(mountOptions(pv, "bind", "noexec"), " "); got != "bind nodev noexec" {
		t.Errorf("got %s", got)
	}
	pv.Annotations = map[string]string{corev1.MountOptionAnnotation: "noatime,ro"}
	if got := strings.Join(mountOptions(pv, "bind"), " "); got != "bind noatime ro" {
		t.Errorf("got %s", got)
	}
}
