// Package attach knows which volumes of CSI drivers are attached to the node, by its Node and by their
// VolumeAttachments.
package attach

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
)

// ID names a volume.
type ID struct{ Driver, Handle string }

// Name is the volume's name in the Node's status.
func (v ID) Name() string { return "kubernetes.io/csi/" + v.Driver + "^" + v.Handle }

// AttachmentOn is the name of the volume's VolumeAttachment on the node.
func (v ID) AttachmentOn(node string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(v.Handle+v.Driver+node)))
}

// Attachments reads VolumeAttachments. A node may read those of its volumes by name, and may not watch them.
type Attachments interface {
	GetVolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error)
}

// Refresher has a driver asked again how many volumes the node can have, and reports whether that number may change.
type Refresher interface{ Refresh(driver string) bool }

// Attached knows which volumes are attached to the node. Its methods may be called from several goroutines.
type Attached struct {
	node    string
	api     Attachments
	drivers Refresher

	mu sync.Mutex
	// used are those that the API server knows to be in use, ready those that the attach-detach controller has attached.
	used  []corev1.UniqueVolumeName
	ready []corev1.AttachedVolume
}

// New knows of none yet.
func New(node string, api Attachments, drivers Refresher) *Attached {
	return &Attached{node: node, api: api, drivers: drivers}
}

// SetNode takes the Node's status as the API server has it, and reports whether it says something else of volumes.
func (a *Attached) SetNode(status corev1.NodeStatus) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := slices.Equal(a.used, status.VolumesInUse) && slices.Equal(a.ready, status.VolumesAttached)
	a.used, a.ready = status.VolumesInUse, status.VolumesAttached
	return !same
}

// state reports whether the API server knows that the volume of that name is in use by this node, and what the Node's
// status lacks of it; empty where it has been attached since.
func (a *Attached) state(name string) (used bool, lacks string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !slices.Contains(a.used, corev1.UniqueVolumeName(name)):
		return false, fmt.Sprintf("volume %s is not in the Node's status.volumesInUse yet", name)
	case !slices.ContainsFunc(a.ready, func(v corev1.AttachedVolume) bool { return string(v.Name) == name }):
		return true, fmt.Sprintf("volume %s is not in the Node's status.volumesAttached yet", name)
	}
	return true, ""
}

// Waits is what the volume of that name waits for, which has no VolumeAttachment; empty where it is attached.
func (a *Attached) Waits(name string) string {
	_, lacks := a.state(name)
	return lacks
}

// Attachment is what a volume must wait for before it is attached, and what its attacher has said of it.
type Attachment struct {
	Waits   string
	Context map[string]string
}

// Must reports whether volumes of the driver must be attached before they are staged or published.
func Must(object *storagev1.CSIDriver) bool {
	return object == nil || object.Spec.AttachRequired == nil || *object.Spec.AttachRequired
}

// Look asks whether the volume is attached, in the order in which the attach-detach controller works: it must
// know that the node uses the volume, or it would detach it below the pod. An error beside an attached volume is one of
// a later attempt, such as the attacher's when it looks at all volumes again: the volume is attached nevertheless.
func (a *Attached) Look(ctx context.Context, v ID) (Attachment, error) {
	used, lacks := a.state(v.Name())
	if !used {
		return Attachment{Waits: lacks}, nil
	}
	name := v.AttachmentOn(a.node)
	va, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return a.api.GetVolumeAttachment(ctx, name)
	})
	switch {
	case err != nil && lacks != "" && apierrors.IsNotFound(err):
		return Attachment{Waits: fmt.Sprintf("the attach-detach controller has not made volume attachment %v of volume %v "+
			"yet", name, v.Handle)}, nil
	case err != nil:
		return Attachment{}, fmt.Errorf("volume %v has GET error for volume attachment %v: %w", v.Handle, name, err)
	case va.DeletionTimestamp != nil:
		return Attachment{}, errors.New("volume attachment is being deleted")
	case !va.Status.Attached && va.Status.AttachError != nil:
		err := errors.New(driver.Line(va.Status.AttachError.Message))
		if code := va.Status.AttachError.ErrorCode; code != nil && *code == exhausted && a.drivers.Refresh(v.Driver) {
			err = fmt.Errorf("%w: %w", plugin.ErrExhausted, err)
		}
		return Attachment{}, err
	case !va.Status.Attached:
		return Attachment{Waits: fmt.Sprintf("volume %v is not attached for volume attachment %v", v.Handle, name)}, nil
	}
	return Attachment{Waits: lacks, Context: va.Status.AttachmentMetadata}, nil
}

// exhausted is gRPC's ResourceExhausted in a VolumeAttachment's error: the node can have no more volumes of the driver.
const exhausted = 8
