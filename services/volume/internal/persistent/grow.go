package persistent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	mount "k8s.io/mount-utils"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/device"
	"kubelot.dev/services/volume/internal/growth"
	"kubelot.dev/services/volume/internal/mounts"
	"kubelot.dev/services/volume/internal/plugin"
)

const (
	// lookEvery is about how often the claim of a volume in use is looked at: no event says that it was made larger, for
	// a node may not watch claims. The kubelet looks each time that it syncs a pod.
	lookEvery = 75 * time.Second
	// The reasons of Events, the kubelet's.
	volumeResizeFailed = "VolumeResizeFailed"
	resizeSuccessful   = "FileSystemResizeSuccessful"
	resizeFailed       = "FileSystemResizeFailed"
)

// nextLook is when the claim is looked at again.
func nextLook() time.Time { return time.Now().Add(lookEvery - lookEvery/10 + rand.N(lookEvery/5)) }

// earlier is the earlier of two times, of which either may be zero for never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// grows reports whether the volume can be made larger on this node while a pod has it.
func (c claims) grows(pv *corev1.PersistentVolume) bool {
	if source := pv.Spec.CSI; source != nil {
		return c.drivers != nil && c.drivers.Grows(source.Driver)
	}
	if pv.Spec.Local == nil || isBlock(pv) {
		return false
	}
	is, err := device.IsDisk(pv.Spec.Local.Path)
	return is && err == nil
}

// isDisk reports whether the pod has a filesystem of a local disk.
func (l *local) isDisk(uid string, known plugin.Result) bool {
	volume := known.PersistentVolume
	if volume == "" || known.HostPath != l.podDir(uid, false, volume) {
		return false
	}
	mounted, err := mounts.Mounted(l.mountPoint(volume))
	return err == nil && mounted
}

// growInUse looks whether the claim of a volume that the pod has was made larger, if it is time for that. The first look
// of a process isn't at once: the volume serves as it is.
func (c claims) growInUse(ctx context.Context, r plugin.Request, look time.Time) (time.Time, error) {
	if look.IsZero() || time.Now().Before(look) {
		return earlier(look, nextLook()), nil
	}
	name, _ := claimOf(r)
	claim, err := c.objects.GetPersistentVolumeClaim(ctx, r.Pod.Namespace, name)
	if err != nil || !growth.MayBeDue(claim) {
		return nextLook(), nil //nolint:nilerr // the next look is soon
	}
	b, err := c.find(ctx, r)
	if err != nil {
		return nextLook(), nil //nolint:nilerr // as above
	}
	if err := c.grow(ctx, r, b); err != nil && !errors.Is(err, growth.ErrInUse) {
		return nextLook(), plugin.FailedStep(volumeResizeFailed, "NodeExpandVolume.NodeExpandVolume", b.volume.Name, err)
	}
	return nextLook(), nil
}

// growAtMount makes the volume larger before the pod starts, where its claim was.
func (c claims) growAtMount(ctx context.Context, r plugin.Request, b bound) error {
	err := c.grow(ctx, r, b)
	if err == nil || errors.Is(err, growth.ErrInUse) {
		return nil
	}
	return b.failed("Setup failed while expanding volume", "MarkVolumeAsMounted failed while expanding volume", err)
}

// grow makes the volume as large as its claim may be, and writes the claim's status.
func (c claims) grow(ctx context.Context, r plugin.Request, b bound) error {
	step, due := growth.Next(b.claim, b.volume)
	if !due {
		return nil
	}
	if b.readOnly {
		text := fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system",
			b.volume.Name)
		c.tell(r, b, corev1.EventTypeWarning, resizeFailed, text)
		return nil
	}
	if step.Begin {
		data, err := growth.Begun(b.claim)
		if err == nil {
			b.claim, err = c.write(ctx, b.claim, data)
		}
		if err != nil {
			return fmt.Errorf("say in the claim's status that the volume grows: %w", err)
		}
	}
	err := c.enlarge(ctx, r, b, step)
	if errors.Is(err, growth.ErrUnsupported) && !step.Begin {
		return nil
	}
	if err != nil {
		if data, patchErr := growth.Failed(b.claim, step, err, time.Now()); patchErr == nil && data != nil {
			_, patchErr = c.write(ctx, b.claim, data)
			err = errors.Join(err, patchErr)
		}
		return err
	}
	text := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", b.volume.Name, r.Pod.Spec.NodeName)
	c.tell(r, b, corev1.EventTypeNormal, resizeSuccessful, text)
	data, err := growth.Finished(b.claim, step.Size)
	if err == nil {
		_, err = c.write(ctx, b.claim, data)
	}
	if err != nil {
		return fmt.Errorf("say in the claim's status how large the volume is: %w", err)
	}
	return nil
}

func (c claims) write(ctx context.Context, claim *corev1.PersistentVolumeClaim, patch []byte,
) (*corev1.PersistentVolumeClaim, error) {
	return plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
		return c.objects.PatchPersistentVolumeClaimStatus(ctx, claim.Namespace, claim.Name, patch)
	})
}

// tell records an Event of the pod, and one of the claim.
func (c claims) tell(r plugin.Request, b bound, kind, reason, message string) {
	r.Calls.Tell(topic.Event{Kind: "Pod", Ref: topic.RefOf(r.Pod), Type: kind, Reason: reason, Message: message})
	r.Calls.Tell(topic.Event{
		Kind: "PersistentVolumeClaim", Type: kind, Reason: reason, Message: message,
		Ref: topic.Ref{Namespace: b.claim.Namespace, Name: b.claim.Name, UID: string(b.claim.UID)},
	})
}

// enlarge makes the volume of that size, which the pod has.
func (c claims) enlarge(ctx context.Context, r plugin.Request, b bound, s growth.Step) error {
	switch {
	case b.volume.Spec.CSI != nil && c.drivers != nil:
		return c.drivers.Grow(ctx, r, b.volume, s.Size)
	case b.volume.Spec.Local != nil && !b.block:
		return c.local.grow(ctx, b)
	}
	return nil
}

// grow makes the filesystem of a local disk as large as the disk. Directories and devices have their size.
func (l *local) grow(ctx context.Context, b bound) error {
	path, err := b.path()
	if err != nil {
		return err
	}
	disk, err := device.IsDisk(path)
	if err != nil || !disk {
		return err
	}
	giveBack, err := l.paths.Take(ctx, path)
	if err != nil {
		return err
	}
	defer giveBack()
	point := l.mountPoint(b.volume.Name)
	if mounted, err := mounts.Mounted(point); err != nil || !mounted {
		return errors.Join(fmt.Errorf("%s isn't mounted at %s", path, point), err)
	}
	if _, err := mount.NewResizeFs(l.mounter.Exec).Resize(path, point); err != nil {
		return fmt.Errorf("%w: %w", growth.ErrFinal, err)
	}
	return nil
}
