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

// refreshed are the drivers that are to be asked again.
type refreshed []string

func (r *refreshed) Refresh(driver string) { *r = append(*r, driver) }

// A volume that can't be attached because the node has too many has its driver asked again how many there can be.
func TestExhausted(t *testing.T) {
	s, asked := &server{}, &refreshed{}
	a := New("n1", s, asked)
	id := ID{Driver: "d", Handle: "h"}
	a.SetNode(corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{corev1.UniqueVolumeName(id.Name())}})
	unavailable, exhausted := int32(14), int32(8)
	for _, c := range []struct {
		code      *int32
		exhausted bool
	}{{nil, false}, {&unavailable, false}, {&exhausted, true}} {
		s.Status.AttachError = &storagev1.VolumeError{Message: "no\nroom", ErrorCode: c.code}
		*asked = nil
		_, err := a.Look(t.Context(), id)
		if err == nil || !strings.Contains(err.Error(), "no room") || errors.Is(err, plugin.ErrExhausted) != c.exhausted ||
			slices.Contains(*asked, "d") != c.exhausted {
			t.Errorf("code %v: %v, asked again are %q", c.code, err, *asked)
		}
	}
}
