package persistent

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/storage/ephemeral"

	"kubelot.dev/daemon/mountpoint"
	"kubelot.dev/services/volume/internal/fc"
	"kubelot.dev/services/volume/internal/iscsi"
	"kubelot.dev/services/volume/internal/nfs"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/scsi"
)

// Objects are read with the node's own credentials: it may get the claims of its pods and the volumes that these are
// bound to.
type Objects interface {
	GetPersistentVolumeClaim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error)
	GetPersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error)
	// PatchPersistentVolumeClaimStatus writes how far the growth of a volume is.
	PatchPersistentVolumeClaimStatus(ctx context.Context, namespace, name string, patch []byte,
	) (*corev1.PersistentVolumeClaim, error)
}

// Drivers mount the persistent volumes of CSI drivers.
type Drivers interface {
	MountPersistent(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, readOnly bool) (plugin.Result,
		error)
	// InPlace is what is known of the volume that a pod has at the path, or as the device with that link.
	InPlace(path string) plugin.InPlace
	// Grows reports whether the driver makes volumes larger on the node. Grow does that with one that the pod has.
	Grows(driver string) bool
	Grow(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, size resource.Quantity) error
}

// Kinds are the volumes of pods that are claims, and the kinds of volumes behind them that have directories and no
// driver. Without drivers, which may be nil, volumes of CSI drivers can't be mounted.
// Without an attacher, which may be nil too, disks of the network wait for nobody.
func Kinds(rootDir string, objects Objects, drivers Drivers, attacher Attacher) plugin.List {
	local, shares := newLocal(rootDir), nfs.New()
	remotes := []*remote{
		newRemote(iscsiDisks{iscsi.NewDisks(rootDir, scsi.OfNode), rootDir, attacher}, local, attacher),
		newRemote(fcDisks{fc.NewDisks(rootDir, scsi.OfNode), rootDir}, local, attacher),
	}
	kinds := plugin.List{
		{
			Name: "kubernetes.io/persistent-claim", LastPause: claimPause,
			Claims: func(v *corev1.Volume) bool { return isClaim(v) || isMigrated(v) },
			Plugin: claims{objects, local, shares, remotes, drivers, new(plugin.Locks)},
		},
		{Name: localName, Dir: localDir, Plugin: filesystems{local}},
		{Name: localName, Dir: localDir, Block: true, Plugin: devices{filesystems{local}}},
		shares.Kind(),
	}
	for _, r := range remotes {
		kinds = append(kinds, r.kinds()...)
	}
	return kinds
}

func isClaim(v *corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }

// claims are the volumes of pods that name a claim, or are one, and those that have become a CSI driver's.
type claims struct {
	objects Objects
	local   *local
	shares  *nfs.Volumes
	remotes []*remote
	drivers Drivers
	// growing are the claims whose volumes are being made larger, by their UIDs.
	growing *plugin.Locks
}

// bound is a claim's persistent volume as the pod wants it.
type bound struct {
	// claim is nil where the pod names the volume itself.
	claim    *corev1.PersistentVolumeClaim
	volume   *corev1.PersistentVolume
	readOnly bool
	// block is true where containers get the device itself; migrated where the volume is of a kind that has become a CSI
	// driver's.
	block, migrated bool
	// label is the SELinux label that a disk is mounted with; empty for none.
	label string
}

// with has the volume's driver told whether the volume has become its.
func (b bound) with(ctx context.Context) context.Context {
	if b.migrated {
		return plugin.Migrated(ctx)
	}
	return ctx
}

func (c claims) Mount(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	place, err := c.inPlace(string(r.Pod.UID), r.Known)
	switch {
	case err != nil:
		return plugin.Result{}, err
	case place.There && r.Ending:
		// It stays as it is until the pod has ended, and isn't looked at before.
		known := r.Known
		known.RefreshAt, known.LookAt = time.Time{}, time.Time{}
		return known, nil
	case place.There:
		return c.keepUp(ctx, r, place)
	case r.Ending:
		return plugin.Result{}, plugin.ErrNotMounted
	}
	return c.bringUp(ctx, r)
}

// keepUp is about a volume that the pod has: it stays as it is, whatever fails.
func (c claims) keepUp(ctx context.Context, r plugin.Request, place plugin.InPlace) (plugin.Result, error) {
	known := r.Known
	known.RefreshAt = place.LookAgain
	if place.Due {
		b, err := c.lookUp(ctx, r)
		if err == nil {
			known, err = c.setUpAs(ctx, r, b)
		}
		if err != nil {
			return r.Known, err
		}
		known.Size = r.Known.Size
	}
	known.LookAt = time.Time{}
	if !place.Grows || !isClaim(r.Volume) {
		return known, nil
	}
	err := c.growInUse(ctx, r, &known)
	known.RefreshAt = earlier(known.RefreshAt, known.LookAt)
	return known, err
}

// bringUp finds the volume and makes it usable for the pod.
func (c claims) bringUp(ctx context.Context, r plugin.Request) (plugin.Result, error) {
	b, err := c.lookUp(ctx, r)
	if err != nil {
		return plugin.Result{}, err
	}
	result, err := c.setUpAs(ctx, r, b)
	size := ""
	if err == nil {
		size, err = c.growAtMount(ctx, r, b)
	}
	if err != nil {
		return plugin.Result{}, err
	}
	if b.claim != nil && c.grows(b.volume) {
		has := b.claim.Status.Capacity[corev1.ResourceStorage]
		result.Size = cmp.Or(size, has.String())
		result.LookAt = nextLook()
		result.RefreshAt = earlier(result.RefreshAt, result.LookAt)
	}
	return result, nil
}

// setUpAs is setUp with what is known of the volume besides.
func (c claims) setUpAs(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	result, err := c.setUp(b.with(ctx), r, b)
	if err != nil {
		return plugin.Result{}, err
	}
	result.PersistentVolume, result.ReadOnly, result.Migrated = b.volume.Name, b.readOnly, b.migrated
	result.SupplementalGroup = extraGroup(b.volume, r.Pod)
	return result, nil
}

// Unmount isn't called: claims have no directories, the volumes behind them have.
func (claims) Unmount(context.Context, string) error { return nil }

func (c claims) inPlace(uid string, known plugin.Result) (plugin.InPlace, error) {
	if path := known.HostPath + known.Device; c.drivers != nil && path != "" {
		if place := c.drivers.InPlace(path); place.OfDriver {
			return place, nil
		}
	}
	if slices.ContainsFunc(c.remotes, func(d *remote) bool { return d.hasDevice(uid, known) }) {
		return plugin.InPlace{There: true}, nil
	}
	there, err := c.local.inPlace(uid, known)
	return plugin.InPlace{There: there, Grows: c.local.has(uid, known)}, err
}

// inPlace reports whether what an earlier mount gave is still there.
func (l *local) inPlace(uid string, known plugin.Result) (bool, error) {
	switch path := known.HostPath; {
	case known.PersistentVolume == "":
		return false, nil
	case known.Device != "":
		return l.device(known.PersistentVolume, uid).Made()
	case strings.HasPrefix(path, filepath.Join(l.root, "pods")+"/"):
		return mountpoint.Mounted(path) // by the table alone: the server of one of the network may not answer
	}
	return known.HostPath != "", nil // a hostPath, of which nothing is mounted
}

// lookUp is find with the kubelet's words about a failure.
func (c claims) lookUp(ctx context.Context, r plugin.Request) (bound, error) {
	b, err := c.find(ctx, r)
	if err == nil {
		return b, nil
	}
	return b, plugin.Unprocessed(r.Volume.Name, err)
}

// find looks up what is behind the pod's volume.
func (c claims) find(ctx context.Context, r plugin.Request) (bound, error) {
	if !isClaim(r.Volume) {
		return inline(r)
	}
	name, readOnly := claimOf(r)
	claim, err := c.claim(ctx, r.Pod.Namespace, name)
	if err != nil {
		return bound{}, fmt.Errorf("error processing PVC %s/%s: %w", r.Pod.Namespace, name, err)
	}
	return c.findOf(ctx, r, claim, readOnly)
}

// findOf looks up what is behind the claim.
func (c claims) findOf(ctx context.Context, r plugin.Request, claim *corev1.PersistentVolumeClaim, readOnly bool,
) (bound, error) {
	if r.Volume.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(r.Pod, claim); err != nil {
			return bound{}, err
		}
	}
	pv, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.PersistentVolume, error) {
		return c.objects.GetPersistentVolume(ctx, claim.Spec.VolumeName)
	})
	isMigrated := false
	if err != nil {
		err = fmt.Errorf("failed to fetch PV %s from API server: %w", claim.Spec.VolumeName, err)
	} else if err = checkVolume(pv, claim); err == nil {
		isMigrated = migration.IsPVMigratable(pv)
		pv, err = translated(pv)
	}
	if err != nil {
		return bound{}, fmt.Errorf("error processing PVC %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	b := bound{claim: claim, volume: pv, readOnly: readOnly, block: plugin.IsBlock(pv), migrated: isMigrated}
	return b, checkMode(r.Pod, r.Volume.Name, pv)
}

func (c claims) claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	claim, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
		return c.objects.GetPersistentVolumeClaim(ctx, namespace, name)
	})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	return claim, checkClaim(claim)
}

// claimOf is the name of the claim that the pod's volume stands for, and whether the pod wants it read-only.
func claimOf(r plugin.Request) (name string, readOnly bool) {
	if source := r.Volume.PersistentVolumeClaim; source != nil {
		return source.ClaimName, source.ReadOnly
	}
	return ephemeral.VolumeClaimName(r.Pod, r.Volume), false
}

// setUp makes the volume usable for the pod.
func (c claims) setUp(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	if err := checkNode(b, r.NodeLabels); err != nil {
		return plugin.Result{}, err
	}
	if err := r.Calls.Take(b.volume.Name, isForOnePod(b.volume)); err != nil {
		return plugin.Result{}, b.failed("SetUp", "SetUpDevice", err)
	}
	source := b.volume.Spec.PersistentVolumeSource
	if i := slices.IndexFunc(c.remotes, func(d *remote) bool { return d.has(source) }); i >= 0 {
		return c.remotes[i].bringUp(ctx, r, b)
	}
	switch {
	case source.Local != nil && b.block:
		return c.local.mapDevice(ctx, r, b)
	case source.Local != nil:
		return c.local.mountFilesystem(ctx, r, b)
	case source.HostPath != nil && !b.block:
		return hostPath(b, source.HostPath)
	case source.NFS != nil && !b.block:
		return c.share(ctx, r, b)
	case source.CSI != nil && c.drivers != nil:
		return c.drivers.MountPersistent(ctx, r, b.volume, b.readOnly)
	}
	return plugin.Result{}, b.failed("SetUp", "SetUpDevice", fmt.Errorf("%s of persistentVolumeClaim volume %q: %w",
		describe(b), r.Volume.Name, plugin.ErrUnsupported))
}

// share mounts a directory of an NFS server.
func (c claims) share(ctx context.Context, r plugin.Request, b bound) (plugin.Result, error) {
	dir := c.shares.Kind().VolumeDir(filepath.Join(c.local.root, "pods", string(r.Pod.UID)), b.volume.Name)
	result, err := c.shares.MountAt(ctx, dir, nfs.Share{
		Source: b.volume.Spec.NFS, Options: mountOptions(b.volume), ReadOnly: b.readOnly,
	}, r.Ending)
	if err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	return result, nil
}

func hostPath(b bound, source *corev1.HostPathVolumeSource) (plugin.Result, error) {
	if len(mountOptions(b.volume)) > 0 {
		return plugin.Result{}, b.failed("MountOptionSupport check", "", errNoMountOptions)
	}
	result, err := plugin.HostPath(source)
	if err != nil {
		return plugin.Result{}, b.failed("SetUp", "", err)
	}
	return result, nil
}
