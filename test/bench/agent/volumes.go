package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/csidriver"
)

// Volumes measures pods one at a time that have a volume of a CSI driver: one that is only mounted, and one that the
// attach-detach controller and the external-attacher attach first.
func (b *Bench) Volumes(ctx context.Context, repeat int) (measure.Figures, error) {
	f := measure.Figures{}
	for _, kind := range []string{"mount", "attach"} {
		b.Say("%d pods one at a time, with a volume to %s", repeat, kind)
		times, err := b.volumes(ctx, kind, repeat)
		if err != nil {
			return f, fmt.Errorf("volumes to %s: %w", kind, err)
		}
		f.Time("volumes."+kind, times, "p50", "max")
	}
	return f, nil
}

func (b *Bench) volumes(ctx context.Context, kind string, repeat int) (times measure.Sample, err error) {
	d := &volumeDriver{b: b, name: kind + ".bench.test", attach: kind == "attach"}
	objects := b.Client.StorageV1().CSIDrivers()
	if _, err := objects.Create(ctx, &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: d.name}, Spec: storagev1.CSIDriverSpec{AttachRequired: &d.attach},
	}, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create the CSIDriver %s: %w", d.name, err)
	}
	defer func() {
		err = errors.Join(err, objects.Delete(context.WithoutCancel(ctx), d.name, metav1.DeleteOptions{}))
	}()
	running, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		for _, ended := range d.programs {
			<-ended
		}
	}()
	if err := d.start(running); err != nil {
		return nil, err
	}
	for i := range repeat {
		took, err := d.pod(ctx, fmt.Sprintf("%s-%d", kind, i))
		if err != nil {
			return nil, err
		}
		times = append(times, took)
	}
	// Pods that have gone don't wait for that.
	return times, until(ctx, "all volumes are detached", func() (bool, error) {
		list, err := b.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
}

// volumeDriver is a CSI driver within this process.
type volumeDriver struct {
	b      *Bench
	name   string
	attach bool
	driver *csidriver.Driver
	// programs are closed when the driver and its attacher have ended.
	programs []<-chan struct{}
}

// start runs the driver until ctx ends, and waits until the CSINode has it, without which nothing is attached or
// mounted.
func (d *volumeDriver) start(ctx context.Context) (err error) {
	state := filepath.Join(d.b.State, d.b.Node, d.name)
	socket := filepath.Join(state, "csi.sock")
	if d.driver, err = csidriver.New(csidriver.Config{
		Name: d.name, NodeID: d.b.Node, State: state, Socket: socket,
		Registry: filepath.Join(d.b.RootDir, "plugins_registry"), NoAttach: !d.attach,
	}); err != nil {
		return err
	}
	ended := make(chan struct{})
	d.programs = append(d.programs, ended)
	go func() {
		defer close(ended)
		if err := d.driver.Run(ctx); err != nil {
			d.b.Say("the driver %s has ended: %v", d.name, err)
		}
	}()
	if err := csidriver.Wait(ctx, socket); err != nil {
		return err
	}
	if d.attach {
		ended, err := d.b.Attacher(ctx, socket)
		if err != nil {
			return fmt.Errorf("start the attacher: %w", err)
		}
		d.programs = append(d.programs, ended)
	}
	return until(ctx, "the CSINode has the driver "+d.name, func() (bool, error) {
		node, err := d.b.Client.StorageV1().CSINodes().Get(ctx, d.b.Node, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Spec.Drivers, func(known storagev1.CSINodeDriver) bool {
			return known.Name == d.name
		}), err
	})
}

// pod measures how long it takes until a pod with a volume of its own is Ready, and ends it.
func (d *volumeDriver) pod(ctx context.Context, name string) (time.Duration, error) {
	pod := d.b.pod(name)
	if err := d.claim(ctx, name); err != nil {
		return 0, err
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
	}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	if err := sleep(ctx, measure.Settle); err != nil {
		return 0, err
	}
	took, err := d.b.all(ctx, []string{name}, func(ctx context.Context, _ string) error {
		return d.b.create(ctx, pod)
	}, isReady)
	if err != nil {
		return 0, err
	}
	_, err = d.b.stopAll(ctx, []string{name})
	return took[0], err
}

// class is the storage class of the volumes, of which there is only the name.
const class = "bench"

// claim makes a volume and its claim of that name, and waits until they are bound.
func (d *volumeDriver) claim(ctx context.Context, name string) error {
	volume := d.b.Node + "-" + name
	made, err := d.driver.CreateVolume(ctx, &csiapi.CreateVolumeRequest{
		Name: volume, VolumeCapabilities: []*csiapi.VolumeCapability{{
			AccessType: &csiapi.VolumeCapability_Mount{Mount: &csiapi.VolumeCapability_MountVolume{}},
			AccessMode: &csiapi.VolumeCapability_AccessMode{Mode: csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		}},
	})
	if err != nil {
		return err
	}
	core, size := d.b.Client.CoreV1(), corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("32Mi")}
	access := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	if _, err := core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volume},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: d.name, VolumeHandle: made.GetVolume().GetVolumeId(), FSType: "ext4",
			}},
			AccessModes: access, Capacity: size, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:                      &corev1.ObjectReference{Namespace: d.b.namespace, Name: name},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the volume %s: %w", volume, err)
	}
	claims, storageClass := core.PersistentVolumeClaims(d.b.namespace), class
	if _, err := claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: access, StorageClassName: &storageClass, VolumeName: volume,
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the claim %s: %w", name, err)
	}
	return until(ctx, "the claim "+name+" is bound", func() (bool, error) {
		claim, err := claims.Get(ctx, name, metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound, err
	})
}
