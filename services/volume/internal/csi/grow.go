package csi

import (
	"context"
	"errors"
	"fmt"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/growth"
	"kubelot.dev/services/volume/internal/plugin"
)

// Grows reports whether the driver makes volumes larger on the node. It may where it isn't registered at the moment, or
// hasn't been asked yet.
func (v *kept) Grows(driver string) bool {
	c := v.drivers.Client(driver)
	defer c.Release()
	if c == nil {
		return true
	}
	can := c.Known()
	return can == nil || can.Expand
}

// Grow makes a volume larger that the pod has. Its errors are growth's.
func (v *kept) Grow(ctx context.Context, r plugin.Request, pv *corev1.PersistentVolume, size resource.Quantity,
) error {
	t := v.at(persistent(r.Pod, pv, false), string(r.Pod.UID))
	giveBack, err := v.locks.Take(ctx, t.key())
	if err != nil {
		return err
	}
	defer giveBack()
	if !v.has(t) {
		return errNotThere
	}
	c := v.drivers.Client(t.driver)
	if c == nil {
		return errors.New(missing(facts{driver: t.driver}).why)
	}
	defer c.Release()
	can, err := c.Capabilities(ctx)
	if err != nil {
		return err
	}
	if !can.Expand {
		return fmt.Errorf("%w: %s", growth.ErrUnsupported, t.driver)
	}
	secrets, err := v.ports.secret(ctx, pv.Spec.CSI.NodeExpandSecretRef)
	if err != nil {
		return err
	}
	r.Calls.Alive()
	calling, cancel := driver.CallContext(ctx)
	defer cancel()
	_, err = c.Node.NodeExpandVolume(calling, v.expansion(t, can, size.Value(), secrets))
	return ofGrowth(err)
}

func (v *kept) expansion(t target, can *driver.Capabilities, size int64, secrets map[string]string,
) *csiapi.NodeExpandVolumeRequest {
	request := &csiapi.NodeExpandVolumeRequest{
		VolumeId: t.handle, VolumePath: t.point, CapacityRange: &csiapi.CapacityRange{RequiredBytes: size},
		VolumeCapability: t.capability(can), Secrets: secrets,
	}
	if can.Stage {
		request.StagingTargetPath = v.staging(t)
	}
	return request
}

// ofGrowth says what the error of a call means for the growth, by the codes that the CSI specification has for it.
func ofGrowth(err error) error {
	if outcomeOf(err) != failed {
		return err
	}
	kind := growth.ErrFinal
	switch status.Code(err) {
	case codes.FailedPrecondition:
		kind = growth.ErrInUse
	case codes.InvalidArgument, codes.OutOfRange, codes.NotFound:
		kind = growth.ErrInfeasible
	}
	return fmt.Errorf("%w: %w", kind, err)
}
