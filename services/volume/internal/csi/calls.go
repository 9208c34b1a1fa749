package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/services/volume/internal/driver"
	"kubelot.dev/services/volume/internal/plugin"
	"kubelot.dev/services/volume/internal/tokens"
)

// call is a call with all that it needs.
type call func(context.Context) error

// prepare gathers what a call needs, before anything is recorded of it.
func (v *Volumes) prepare(ctx context.Context, t task, k kind, f facts, c *driver.Client) (call, error) {
	staging := v.staging(t.target)
	switch k {
	case stage:
		secrets, err := v.ports.secret(ctx, t.stageSecret)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if err := os.MkdirAll(staging, 0o750); err != nil {
				return err
			}
			_, err := c.Node.NodeStageVolume(ctx, &csiapi.NodeStageVolumeRequest{
				VolumeId: t.handle, PublishContext: t.publishContext, StagingTargetPath: staging,
				VolumeCapability: t.capability(f.plugin), Secrets: secrets, VolumeContext: t.attributes,
			})
			return err
		}, nil
	case publish:
		return v.preparePublish(ctx, t, f, c, staging)
	case unpublish:
		if t.block {
			if err := t.device.Release(); err != nil {
				return nil, err
			}
		}
		return func(ctx context.Context) error {
			_, err := c.Node.NodeUnpublishVolume(ctx, &csiapi.NodeUnpublishVolumeRequest{
				VolumeId: t.handle, TargetPath: t.point,
			})
			return err
		}, nil
	}
	operation := map[bool]string{false: "unmount_device", true: "unmap_device"}[t.block]
	return func(ctx context.Context) error {
		ended := plugin.Operation(ctx, operation, pluginName+":"+t.driver)
		_, err := c.Node.NodeUnstageVolume(ctx, &csiapi.NodeUnstageVolumeRequest{
			VolumeId: t.handle, StagingTargetPath: staging,
		})
		ended(err)
		return err
	}, nil
}

func (v *Volumes) preparePublish(ctx context.Context, t task, f facts, c *driver.Client, staging string) (call, error) {
	secrets, err := v.ports.secret(ctx, t.publishSecret)
	if err != nil {
		return nil, err
	}
	var given map[string]string
	if !t.block {
		if given, err = v.tokens.For(ctx, v.ports.Tokens, tokens.Use{Dir: t.dir, Pod: t.pod}, t.object); err != nil {
			return nil, err
		}
	}
	attributes := merged(t.attributes, t.podInfo())
	if t.tokensAreSecret() {
		secrets = merged(secrets, given)
	} else {
		attributes = merged(attributes, given)
	}
	request := &csiapi.NodePublishVolumeRequest{
		VolumeId: t.handle, PublishContext: t.publishContext, TargetPath: t.point,
		VolumeCapability: t.capability(f.plugin), Readonly: t.readOnly, Secrets: secrets, VolumeContext: attributes,
	}
	if t.persistent && f.plugin.Stage || t.block {
		request.StagingTargetPath = staging
	}
	return func(ctx context.Context) error {
		if t.block {
			if err := os.MkdirAll(filepath.Dir(t.point), 0o750); err != nil {
				return err
			}
		}
		_, err := c.Node.NodePublishVolume(ctx, request)
		return err
	}, nil
}

// secret reads a secret that a driver gets; an absent reference is no secret.
func (p Ports) secret(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.Secret, error) {
		return p.Secrets.GetSecret(ctx, ref.Namespace, ref.Name)
	})
	if err != nil {
		return nil, fmt.Errorf("get the secret %s/%s for the driver: %w", ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		out[key] = string(value)
	}
	return out, nil
}
