package attach

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"kubelot.dev/services/volume/internal/plugin"
)

// server has one VolumeAttachment.
type server struct{ storagev1.VolumeAttachment }

func (s *server) GetVolumeAttachment(context.Context, string) (*storagev1.VolumeAttachment, error) {
	return &s.VolumeAttachment, nil
}

// refreshed are the drivers that are to be asked again; the driver static never is.
type refreshed []string

func (r *refreshed) Refresh(driver string) bool {
	*r = append(*r, driver)
	return driver != "static"
}

// A volume that can't be attached because the node has too many has its driver asked again how many there can be. If
// that never changes, as without a period in the CSIDriver object, it is a failure like any other.
func TestExhausted(t *testing.T) {
	s, asked := &server{}, &refreshed{}
	a := New("n1", s, asked)
	unavailable, exhausted := int32(14), int32(8)
	for _, c := range []struct {
		driver           string
		code             *int32
		asked, exhausted bool
	}{
		{"d", nil, false, false},
		{"d", &unavailable, false, false},
		{"d", &exhausted, true, true},
		{"static", &exhausted, true, false},
	} {
		id := ID{Driver: c.driver, Handle: "h"}
		a.SetNode(corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{corev1.UniqueVolumeName(id.Name())}})
		s.Status.AttachError = &storagev1.VolumeError{Message: "no\nroom", ErrorCode: c.code}
		*asked = nil
		_, err := a.Look(t.Context(), id)
		if err == nil || !strings.Contains(err.Error(), "no room") || errors.Is(err, plugin.ErrExhausted) != c.exhausted ||
			slices.Contains(*asked, c.driver) != c.asked {
			t.Errorf("%s, code %v: %v, asked again are %q", c.driver, c.code, err, *asked)
		}
	}
}

// An error beside an attached volume is one of a later attempt to attach it again.
func TestAttachedWithAnError(t *testing.T) {
	s, asked := &server{}, &refreshed{}
	a, id, exhausted := New("n1", s, asked), ID{Driver: "d", Handle: "h"}, int32(8)
	s.Status = storagev1.VolumeAttachmentStatus{
		Attached: true, AttachmentMetadata: map[string]string{"device": "sdb"},
		AttachError: &storagev1.VolumeError{Message: "no", ErrorCode: &exhausted},
	}
	name := corev1.UniqueVolumeName(id.Name())
	node := corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{name}}
	a.SetNode(node)
	if got, err := a.Look(t.Context(), id); err != nil || got.Waits == "" {
		t.Errorf("the controller hasn't attached it: %+v, %v", got, err)
	}
	node.VolumesAttached = []corev1.AttachedVolume{{Name: name}}
	a.SetNode(node)
	if got, err := a.Look(t.Context(), id); err != nil || got.Waits != "" || got.Context["device"] != "sdb" {
		t.Errorf("%+v, %v", got, err)
	}
	if len(*asked) > 0 {
		t.Errorf("asked again are %q", *asked)
	}
}
