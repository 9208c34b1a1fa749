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
	// lookTimeout bounds the look.
	lookTimeout = 5 * time.Second
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
	return pv.Spec.Local != nil
}

// has reports whether what the pod has is a local volume.
func (l *local) has(uid string, known plugin.Result) bool {
	volume := known.PersistentVolume
	return volume != "" &&
		(known.HostPath == l.podDir(uid, false, volume) || known.Device == l.podDir(uid, true, volume))
}

// growInUse looks whether the claim of a volume that the pod has was made larger, if it is time for that, and notes in
// what is known of the volume when to look again. The first look of a process isn't at once: the volume serves as it
// is.
func (c claims) growInUse(ctx context.Context, r plugin.Request, known *plugin.Result) error {
	look := r.Known.LookAt
	if known.LookAt = look; look.IsZero() {
		known.LookAt = nextLook()
	}
	if look.IsZero() || time.Now().Before(look) {
		return nil
	}
	known.LookAt = nextLook()
	name, readOnly := claimOf(r)
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	claim, err := c.objects.GetPersistentVolumeClaim(asking, r.Pod.Namespace, name)
	cancel()
	if err != nil || !growth.MayBeDue(claim) && !growth.MustFollow(claim, known.Size) {
		return nil //nolint:nilerr // the next look is soon
	}
	b, err := c.findOf(ctx, r, claim, readOnly)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	ended := plugin.Operation(b.with(ctx), "volume_fs_resize", b.plugin())
	size, err := c.grow(ctx, r, b)
	switch {
	case errors.Is(err, growth.ErrInUse):
		ended(nil)                 // the volume serves as it is: no failure to the kubelet either
		known.LookAt = time.Time{} // until it is mounted again
		return nil
	case err != nil:
		ended(err)
		failure := plugin.FailedStep(volumeResizeFailed, "NodeExpandVolume.NodeExpandVolume", b.volume.Name, err)
		failure.Costly = true
		known.LookAt = look // the daemon's pauses say when
		return failure
	case size != "":
		ended(nil)
		known.Size = size
	}
	return nil
}

// growAtMount makes the volume larger before the pod starts, where its claim was, and returns the size as grow does.
func (c claims) growAtMount(ctx context.Context, r plugin.Request, b bound) (size string, err error) {
	size, err = c.grow(ctx, r, b)
	if err == nil || errors.Is(err, growth.ErrInUse) {
		return size, nil
	}
	reason, step := failedMount, "MountVolume.Setup"
	if b.block {
		reason, step = failedMap, "MapVolume.MarkVolumeAsMounted"
	}
	return "", &plugin.Failure{
		Reason: reason, Err: err, Costly: true,
		What: fmt.Sprintf("%s failed while expanding volume for volume %q : ", step, b.volume.Name),
	}
}

// due is the growth that is due on this node: that of the claim, or one that the claim's status tells of already.
func due(r plugin.Request, b bound) (growth.Step, bool) {
	if step, due := growth.Next(b.claim, b.volume); due {
		return step, true
	}
	return growth.Follow(b.claim, b.volume, r.Known.Size)
}

// grow makes the volume as large as its claim may be, and writes the claim's status. One claim of several pods grows
// once. It returns the size that the volume has now, empty if nothing was due.
func (c claims) grow(ctx context.Context, r plugin.Request, b bound) (size string, err error) {
	source := b.volume.Spec.PersistentVolumeSource
	if b.claim == nil || source.CSI == nil && source.Local == nil {
		return "", nil
	}
	if _, is := due(r, b); !is {
		return "", nil
	}
	giveBack, err := c.growing.Take(ctx, string(b.claim.UID))
	if err != nil {
		return "", err
	}
	defer giveBack()
	// Another pod's worker may have done it meanwhile.
	if b.claim, err = c.claim(ctx, b.claim.Namespace, b.claim.Name); err != nil {
		return "", err
	}
	step, is := due(r, b)
	switch {
	case !is:
		return "", nil
	case b.readOnly:
		text := fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system",
			b.volume.Name)
		c.tell(r, b, corev1.EventTypeWarning, resizeFailed, text)
	default:
		err = c.growBy(ctx, r, b, step)
	}
	if err != nil {
		return "", err
	}
	return step.Size.String(), nil
}

func (c claims) growBy(ctx context.Context, r plugin.Request, b bound, step growth.Step) error {
	if step.Begin {
		if err := c.write(ctx, b.claim, growth.Begun); err != nil {
			return fmt.Errorf("say in the claim's status that the volume grows: %w", err)
		}
	}
	err := c.enlarge(b.with(ctx), r, b, step)
	// What has happened is written even if the pod has ended meanwhile.
	ctx = context.WithoutCancel(ctx)
	if errors.Is(err, growth.ErrUnsupported) && !step.Begin {
		return nil
	}
	if err != nil && step.Told {
		return err // the claim's status is right: it tells of another node
	}
	if err != nil {
		return errors.Join(err, c.write(ctx, b.claim, func(claim *corev1.PersistentVolumeClaim) ([]byte, error) {
			return growth.Failed(claim, step, err, time.Now())
		}))
	}
	text := fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", b.volume.Name, r.Pod.Spec.NodeName)
	c.tell(r, b, corev1.EventTypeNormal, resizeSuccessful, text)
	if step.Told {
		return nil
	}
	if err := c.write(ctx, b.claim, func(claim *corev1.PersistentVolumeClaim) ([]byte, error) {
		return growth.Finished(claim, step.Size)
	}); err != nil {
		return fmt.Errorf("say in the claim's status how large the volume is: %w", err)
	}
	return nil
}

// writeTries is how often a claim is read again because somebody else has written it meanwhile.
const writeTries = 3

// write applies the patch to the claim, which then is as the API server has it.
func (c claims) write(ctx context.Context, claim *corev1.PersistentVolumeClaim,
	patch func(*corev1.PersistentVolumeClaim) ([]byte, error),
) error {
	for tries := 1; ; tries++ {
		data, err := patch(claim)
		if err != nil || data == nil {
			return err
		}
		now, err := plugin.Ask(ctx, apierrors.IsForbidden,
			func(ctx context.Context) (*corev1.PersistentVolumeClaim, error) {
				return c.objects.PatchPersistentVolumeClaimStatus(ctx, claim.Namespace, claim.Name, data)
			})
		if apierrors.IsConflict(err) && tries < writeTries {
			now, err = c.objects.GetPersistentVolumeClaim(ctx, claim.Namespace, claim.Name)
			if err == nil {
				*claim = *now
				continue
			}
		}
		if err == nil {
			*claim = *now
		}
		return err
	}
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
