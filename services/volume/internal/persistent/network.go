package persistent

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/services/volume/internal/fc"
	"kubelot.dev/services/volume/internal/iscsi"
	"kubelot.dev/services/volume/internal/plugin"
)

// network is a kind of disks of the network.
type network interface {
	netSource
	netPlaces
	// attach brings the disk to the node and returns its device. The global directory has a record of it before.
	attach(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, global string) (string, error)
	// detach takes the disk of a global directory away, and removes the directory.
	detach(ctx context.Context, global string) error
}

// netSource is what the API says of the kind.
type netSource interface {
	// kind has the names of the kind, and says which volumes of pods are of it.
	kind() plugin.Kind
	// has reports whether a persistent volume has the source; own is that of a pod's own volume.
	has(s corev1.PersistentVolumeSource) bool
	own(r plugin.Request) (s corev1.PersistentVolumeSource, readOnly bool)
	// disk is the disk behind the volume.
	disk(pv *corev1.PersistentVolume) (netDisk, error)
}

// netPlaces is what is on disk of the kind.
type netPlaces interface {
	// top is the directory above all global directories.
	top() string
	// globals are the global directories where disks are mounted, or those where pods have them as devices.
	globals(block bool) ([]string, error)
	// read is the disk of a global directory.
	read(global string) (netDisk, error)
}

// netDisk is what the node knows a disk of the network by.
type netDisk struct {
	// volume is the name of the volume; empty for a disk that a kubelet has mounted and has no record of.
	volume string
	// attached is the disk's name in the Node's status.
	attached string
	// mounted is the global directory where it is mounted, mapped the one where pods have it as a device.
	mounted, mapped string
}

// iscsiDisks are disks of iSCSI targets.
type iscsiDisks struct {
	*iscsi.Disks
	root string
	// cluster may be nil.
	cluster Attacher
}

func (iscsiDisks) kind() plugin.Kind {
	return plugin.Kind{
		Name: iscsi.Name, Dir: iscsi.Dir, Claims: func(v *corev1.Volume) bool { return v.ISCSI != nil },
	}
}

func (iscsiDisks) has(s corev1.PersistentVolumeSource) bool { return s.ISCSI != nil }

func (iscsiDisks) own(r plugin.Request) (corev1.PersistentVolumeSource, bool) {
	s := r.Volume.ISCSI
	source := &corev1.ISCSIPersistentVolumeSource{
		TargetPortal: s.TargetPortal, IQN: s.IQN, Lun: s.Lun, ISCSIInterface: s.ISCSIInterface, FSType: s.FSType,
		ReadOnly: s.ReadOnly, Portals: s.Portals, DiscoveryCHAPAuth: s.DiscoveryCHAPAuth,
		SessionCHAPAuth: s.SessionCHAPAuth, InitiatorName: s.InitiatorName,
	}
	if s.SecretRef != nil {
		source.SecretRef = &corev1.SecretReference{Name: s.SecretRef.Name, Namespace: r.Pod.Namespace}
	}
	return corev1.PersistentVolumeSource{ISCSI: source}, s.ReadOnly
}

func (n iscsiDisks) disk(pv *corev1.PersistentVolume) (netDisk, error) {
	d, err := iscsi.New(pv.Name, pv.Spec.ISCSI)
	if err != nil {
		return netDisk{}, err
	}
	return netDisk{d.VolName, d.Attached, d.Global(n.root, false), d.Global(n.root, true)}, nil
}

func (iscsiDisks) read(global string) (netDisk, error) {
	d, err := iscsi.Read(global)
	return netDisk{volume: d.VolName, attached: d.Attached}, err
}

func (n iscsiDisks) top() string { return iscsi.Top(n.root) }

func (n iscsiDisks) globals(block bool) ([]string, error) { return iscsi.Globals(n.root, block) }

func (n iscsiDisks) attach(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, global string,
) (string, error) {
	d, err := iscsi.New(pv.Name, pv.Spec.ISCSI)
	if err != nil {
		return "", err
	}
	secret := map[string]string{}
	if ref := pv.Spec.ISCSI.SecretRef; ref != nil && d.NeedsSecret() {
		if n.cluster == nil {
			return "", errors.New("its secret can't be read without a cluster")
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = r.Pod.Namespace
		}
		data, err := n.cluster.Secret(ctx, namespace, ref.Name)
		if err != nil {
			return "", err
		}
		for key, value := range data {
			secret[key] = string(value)
		}
	}
	return n.Attach(ctx, d, global, secret, r.Calls.Alive)
}

func (n iscsiDisks) detach(ctx context.Context, global string) error { return n.Detach(ctx, global) }

// fcDisks are disks of fibre channel.
type fcDisks struct {
	*fc.Disks
	root string
}

func (fcDisks) kind() plugin.Kind {
	return plugin.Kind{Name: fc.Name, Dir: fc.Dir, Claims: func(v *corev1.Volume) bool { return v.FC != nil }}
}

func (fcDisks) has(s corev1.PersistentVolumeSource) bool { return s.FC != nil }

func (fcDisks) own(r plugin.Request) (corev1.PersistentVolumeSource, bool) {
	return corev1.PersistentVolumeSource{FC: r.Volume.FC}, r.Volume.FC.ReadOnly
}

func (n fcDisks) disk(pv *corev1.PersistentVolume) (netDisk, error) {
	d, err := fc.New(pv.Name, pv.Spec.FC)
	if err != nil {
		return netDisk{}, err
	}
	return netDisk{d.Volume, d.Attached, d.Global(n.root, false), d.Global(n.root, true)}, nil
}

func (fcDisks) read(global string) (netDisk, error) {
	d, err := fc.Read(global)
	return netDisk{volume: d.Volume, attached: d.Attached}, err
}

func (n fcDisks) top() string { return fc.Top(n.root) }

func (n fcDisks) globals(block bool) ([]string, error) { return fc.Globals(n.root, block) }

func (n fcDisks) attach(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, global string,
) (string, error) {
	d, err := fc.New(pv.Name, pv.Spec.FC)
	if err != nil {
		return "", err
	}
	return n.Attach(ctx, d, global, r.Calls.Alive)
}

func (n fcDisks) detach(ctx context.Context, global string) error { return n.Detach(ctx, global) }
