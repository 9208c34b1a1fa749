package persistent

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

// named is a driver that notes what it is to mount.
type named struct {
	growing
	mounted []string
}

func (n *named) MountPersistent(_ context.Context, _ plugin.Request, pv *corev1.PersistentVolume, _ bool,
) (plugin.Result, error) {
	n.mounted = append(n.mounted, strings.TrimSpace(pv.Name+" "+pv.Spec.CSI.Driver+" "+pv.Spec.CSI.VolumeHandle+" "+
		pv.Spec.CSI.VolumeAttributes["storagepolicyname"]))
	return plugin.Result{HostPath: "/there"}, nil
}

// Volumes of clouds are those of their CSI drivers, behind a claim and in a pod's own spec.
func TestMigratedVolumes(t *testing.T) {
	for _, c := range []struct {
		source corev1.PersistentVolumeSource
		want   string
	}{
		{
			corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{
				VolumeID: "vol-02399794d890f9375", FSType: "ext4",
			}}, "ebs.csi.aws.com vol-02399794d890f9375",
		},
		{
			corev1.PersistentVolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/sub/d"}},
			"disk.csi.azure.com /sub/d",
		},
		{
			corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{VolumeID: "c-1"}},
			"cinder.csi.openstack.org c-1",
		},
		{
			corev1.PersistentVolumeSource{VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{VolumePath: "[ds] v.vmdk"}},
			"csi.vsphere.vmware.com [ds] v.vmdk",
		},
	} {
		driver := &named{}
		b := newBed(t, c.source)
		b.kinds = Kinds(b.root, b, driver, nil)
		b.mount(b.request("u-1"))
		if got := strings.Join(driver.mounted, ", "); got != "pv "+c.want {
			t.Errorf("mounted %q, want %q", got, c.want)
		}
	}

	driver := &named{}
	b := newBed(t, corev1.PersistentVolumeSource{})
	b.kinds = Kinds(b.root, b, driver, nil)
	r := b.request("u-1")
	r.Volume.VolumeSource = corev1.VolumeSource{GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}}
	b.asked = 0
	if got := b.mount(r); !got.RefreshAt.IsZero() || b.asked > 0 {
		t.Errorf("the result is %+v; the API server was asked %d times", got, b.asked)
	}
	want := "pd.csi.storage.gke.io-disk pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk"
	if got := strings.Join(driver.mounted, ", "); got != want {
		t.Errorf("mounted %q, want %q", got, want)
	}

	for want, source := range map[string]corev1.VolumeSource{
		"~subscriptions~s~disks~d disk.csi.azure.com /subscriptions/s/disks/d": {
			AzureDisk: &corev1.AzureDiskVolumeSource{DiskName: "d", DataDiskURI: "/subscriptions/s/disks/d"},
		},
		"csi.vsphere.vmware.com-[ds] kubevols~x.vmdk csi.vsphere.vmware.com [ds] kubevols/x.vmdk gold": {
			VsphereVolume: &corev1.VsphereVirtualDiskVolumeSource{
				VolumePath: "[ds] kubevols/x.vmdk", StoragePolicyName: "gold",
			},
		},
	} {
		driver.mounted, r.Volume.VolumeSource = nil, source
		result := b.mount(r)
		if got := strings.Join(driver.mounted, ", "); got != want || !strings.HasPrefix(want, result.PersistentVolume+" ") {
			t.Errorf("mounted %q as %q, want %q", got, result.PersistentVolume, want)
		}
	}

	b = newBed(t, corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{
		ShareName: "", SecretName: "",
	}})
	b.kinds = Kinds(b.root, b, driver, nil)
	b.fails(b.request("u-1"), "FailedMount Unable to attach or mount volumes: unmounted volumes=[vol], unattached "+
		"volumes=[], failed to process volumes=[vol]: error processing PVC shop/data: failed to translate in-tree pv to "+
		"CSI: could not find a secret namespace in PersistentVolumeSource or ClaimRef")
}
