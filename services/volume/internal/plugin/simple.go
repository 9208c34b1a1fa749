package plugin

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// image is a volume that the runtime mounts from an OCI artifact; podsync pulls it.
type image struct{}

func (image) Mount(_ context.Context, r Request) (Result, error) {
	return Result{Image: r.Volume.Image.Reference, ReadOnly: true}, nil
}

func (image) Unmount(context.Context, string) error { return nil }

// unsupported is what no other kind claims: inline volumes that need a driver, and kinds that Kubernetes has retired.
type unsupported struct{}

// ErrUnsupported is in the error of a volume whose kind kubelot doesn't mount.
var ErrUnsupported = errors.New("kubelot does not mount volumes of this kind yet; use a node with the kubelet, or " +
	"another kind of volume")

func (unsupported) Mount(_ context.Context, r Request) (Result, error) {
	return Result{}, fmt.Errorf("%s: %w", sourceName(r.Volume), ErrUnsupported)
}

func (unsupported) Unmount(context.Context, string) error { return nil }

// sourceName is the name of the volume's source as the pod spec has it, such as csi driver "x".
func sourceName(v *corev1.Volume) string {
	if v.CSI != nil {
		return fmt.Sprintf("csi driver %q", v.CSI.Driver)
	}
	if name := SourceName(v.VolumeSource); name != "" {
		return name
	}
	return "a volume without a source"
}

// SourceName is the name that the API gives to the one source which is set in a VolumeSource or a
// PersistentVolumeSource, such as nfs; empty where none is.
func SourceName(sources any) string {
	source := reflect.ValueOf(sources)
	for i := range source.NumField() {
		if field := source.Field(i); field.Kind() == reflect.Pointer && !field.IsNil() {
			name, _, _ := strings.Cut(source.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
