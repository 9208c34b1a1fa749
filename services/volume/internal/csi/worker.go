package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"kubelot.dev/services/volume/internal/plugin"
)

// maxSteps is more than a volume can need, in case a driver answers so that no end is reached.
const maxSteps = 8

// task is one pod's wish about one volume.
type task struct {
	target
	wanted, again, podOnly bool
	// unattached says why the volume isn't attached.
	unattached string
	// request is the pod's; it has none where the pod is to lose the volume.
	request *plugin.Request
}

// settle does what is to be done until the volume is as wished. It is called with the volume's lock.
func (v *Volumes) settle(ctx context.Context, t task) error {
	for range maxSteps {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		f, c, err := v.observe(ctx, t)
		if err != nil {
			return err
		}
		a := next(f)
		switch a.kind {
		case done:
			return nil
		case wait:
			return t.failed(publish, errors.New(a.why))
		case publish:
			t.again = false
		}
		if t.request != nil {
			t.request.Calls.Alive()
		}
		if err := v.do(ctx, t, a.kind, f, c); err != nil {
			return t.failed(a.kind, err)
		}
	}
	return t.failed(publish, errors.New("its state keeps changing; somebody else works on it"))
}

// what begins the messages about a call, in the kubelet's words.
func (t target) what(k kind) string {
	name := map[kind]string{
		stage: "MountVolume.MountDevice", publish: "MountVolume.SetUp",
		own: "MountVolume.SetUp", unpublish: "UnmountVolume.TearDown", unstage: "UnmountDevice", forget: "UnmountDevice",
	}[k]
	return fmt.Sprintf("%s failed for volume %q : ", name, t.name)
}

func (t task) failed(k kind, err error) error {
	return &plugin.Failure{Reason: "FailedMount", What: t.what(k), Err: err}
}

// observe reads what the next action follows from.
func (v *Volumes) observe(ctx context.Context, t task) (facts, *client, error) {
	f := facts{
		driver: t.driver, wanted: t.wanted, again: t.again, podOnly: t.podOnly, persistent: t.persistent,
		unattached: t.unattached,
	}
	if t.dir != "" {
		own, err := readRecord(t.dir)
		if err != nil {
			return f, nil, t.failed(publish, err)
		}
		f.pod = own.step(v.boot)
	}
	var err error
	if t.persistent {
		common, err := readRecord(v.stageDir(t.target))
		if err != nil {
			return f, nil, t.failed(stage, err)
		}
		f.volume = common.step(v.boot)
		if f.others, err = v.others(t.target); err != nil {
			return f, nil, t.failed(publish, err)
		}
	}
	c := v.drivers.client(t.driver)
	if c == nil {
		return f, nil, nil
	}
	if f.plugin, err = c.capabilities(ctx); err != nil {
		return f, nil, t.failed(publish, err)
	}
	f.group = t.wanted && t.setsGroup(f.plugin)
	return f, c, nil
}

// do makes one call: what is recorded before it says that it may have happened, what is recorded after it what the
// outcome says.
func (v *Volumes) do(ctx context.Context, t task, k kind, f facts, c *client) error {
	dir, before, content := t.dir, f.pod, t.record(v.node)
	if k == stage || k == unstage || k == forget {
		dir, before, content = v.stageDir(t.target), f.volume, record{keyDriver: t.driver, keyHandle: t.handle}
	}
	switch k {
	case forget:
		return v.clear(dir, "globalmount")
	case own:
		if err := v.giveToGroup(ctx, t); err != nil {
			return err
		}
		return v.note(dir, content, stepPublished)
	}
	doIt, err := v.prepare(ctx, t, k, f, c)
	if err != nil {
		return err
	}
	if k == stage && f.pod == stepNone {
		// The pod's record comes first: what is staged for a pod is found again by it.
		if err := v.note(t.dir, t.record(v.node), stepWanted); err != nil {
			return err
		}
	}
	if err := v.note(dir, content, during(k, before)); err != nil {
		return err
	}
	calling, cancel := callContext(ctx)
	err = doIt(calling)
	cancel()
	s := after(k, f, before, outcomeOf(err))
	if s != stepNone && s != stepWanted {
		return errors.Join(err, v.note(dir, content, s))
	}
	return errors.Join(err, v.takeBack(t, k, dir, content))
}

// takeBack removes what a call that has failed for good, or has undone another, leaves.
func (v *Volumes) takeBack(t task, k kind, dir string, content record) error {
	switch {
	case k == stage || k == unstage:
		return v.clear(dir, "globalmount")
	case k == publish && t.persistent:
		// The pod still wants it, so its record stays: what is staged is found again by it.
		return errors.Join(removeEmpty(t.mount()), v.note(dir, content, stepWanted))
	}
	return v.clear(dir, "mount")
}

// callContext is of a call that isn't broken off because its pod has ended: the driver would go on with it, and nobody
// would know its outcome.
func callContext(ctx context.Context) (context.Context, func()) {
	limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), callLimit,
		fmt.Errorf("the driver has not answered for %s", callLimit))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(context.Cause(ctx), plugin.ErrTerminated) {
			cancel()
		}
	})
	return limited, func() {
		stop()
		cancel()
	}
}

// call is a call with all that it needs.
type call func(context.Context) error

// prepare gathers what a call needs, before anything is recorded of it.
func (v *Volumes) prepare(ctx context.Context, t task, k kind, f facts, c *client) (call, error) {
	staging := filepath.Join(v.stageDir(t.target), "globalmount")
	switch k {
	case stage:
		secrets, err := v.secret(ctx, t.stageSecret)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if err := os.MkdirAll(staging, 0o750); err != nil {
				return err
			}
			_, err := c.node.NodeStageVolume(ctx, &csiapi.NodeStageVolumeRequest{
				VolumeId: t.handle, PublishContext: t.publishContext, StagingTargetPath: staging,
				VolumeCapability: t.capability(f.plugin), Secrets: secrets, VolumeContext: t.attributes,
			})
			return err
		}, nil
	case publish:
		return v.preparePublish(ctx, t, f, c, staging)
	case unpublish:
		return func(ctx context.Context) error {
			_, err := c.node.NodeUnpublishVolume(ctx, &csiapi.NodeUnpublishVolumeRequest{
				VolumeId: t.handle, TargetPath: t.mount(),
			})
			return err
		}, nil
	}
	return func(ctx context.Context) error {
		_, err := c.node.NodeUnstageVolume(ctx, &csiapi.NodeUnstageVolumeRequest{
			VolumeId: t.handle, StagingTargetPath: staging,
		})
		return err
	}, nil
}

func (v *Volumes) preparePublish(ctx context.Context, t task, f facts, c *client, staging string) (call, error) {
	secrets, err := v.secret(ctx, t.publishSecret)
	if err != nil {
		return nil, err
	}
	tokens, separate, err := t.tokens(ctx, v.ports.Tokens)
	if err != nil {
		return nil, err
	}
	attributes := merged(t.attributes, t.podInfo())
	if separate {
		secrets = merged(secrets, tokens)
	} else {
		attributes = merged(attributes, tokens)
	}
	request := &csiapi.NodePublishVolumeRequest{
		VolumeId: t.handle, PublishContext: t.publishContext, TargetPath: t.mount(),
		VolumeCapability: t.capability(f.plugin), Readonly: t.readOnly, Secrets: secrets, VolumeContext: attributes,
	}
	if t.persistent && f.plugin.stage {
		request.StagingTargetPath = staging
	}
	return func(ctx context.Context) error {
		_, err := c.node.NodePublishVolume(ctx, request)
		return err
	}, nil
}

// secret reads a secret that a driver gets; an absent reference is no secret.
func (v *Volumes) secret(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := plugin.Ask(ctx, apierrors.IsForbidden, func(ctx context.Context) (*corev1.Secret, error) {
		return v.ports.Secrets.GetSecret(ctx, ref.Namespace, ref.Name)
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
