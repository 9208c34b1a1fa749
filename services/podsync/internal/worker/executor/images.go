package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/image"
	"kubelot.dev/services/podsync/internal/node/events"
	"kubelot.dev/services/podsync/internal/runtime/criconfig"
	"kubelot.dev/services/podsync/internal/runtime/env"
	"kubelot.dev/services/podsync/internal/worker"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// pullBackOffShown is how soon after a failed pull the waiting reason turns from ErrImagePull to ImagePullBackOff.
const pullBackOffShown = 2 * time.Second

// images makes the images of containers present.
type images struct {
	puller  *image.Puller
	sources env.Sources
	node    Handlers
	report  *events.Reporter
	cgroups Cgroups
}

// ensureImage makes the images of the container and of the image volumes it mounts present.
func (im *images) ensure(ctx context.Context, s worker.Snapshot, action plan.Action) (worker.Images, error) {
	c := plan.Container(s.Pod, action.Container)
	if c == nil {
		return worker.Images{}, fmt.Errorf("the pod has no container %q any more", action.Container)
	}
	path := events.FieldPath(s.Pod, c.Name)
	got, err := im.image(ctx, s, image.Request{
		FieldPath: path, Container: path, Image: c.Image,
		Policy: c.ImagePullPolicy,
	})
	if err != nil {
		return worker.Images{}, err
	}
	volumes, err := im.imageVolumes(ctx, s, c)
	return worker.Images{Image: got, Volumes: volumes}, err
}

// image makes the image of the request present, to which it adds what follows from the pod.
func (im *images) image(ctx context.Context, s worker.Snapshot, req image.Request) (image.Image, error) {
	handler, err := handler(ctx, im.node, s.Pod)
	if err != nil {
		return image.Image{}, err
	}
	req.Pod, req.Secrets, req.RuntimeHandler, req.Anew = s.Pod, im.pullSecrets(ctx, s.Pod), handler, s.Anew
	req.Sandbox = criconfig.ForPull(s.Pod, im.cgroups.Parent(s.Pod))
	got, err := im.puller.Ensure(ctx, req)
	var failed *image.Error
	if errors.As(err, &failed) {
		retry := failed.RetryAt
		if retry.IsZero() {
			retry = time.Now().Add(time.Hour) // only a change of the spec helps, and that clears the failure
		}
		if failed.Reason == image.ReasonPull {
			retry = time.Now().Add(pullBackOffShown) // the puller answers with its back-off then
		}
		return got, &worker.Failed{Reason: failed.Reason, Message: failed.Message, RetryAt: retry}
	}
	return got, err
}

// pullSecrets reads the pod's pull secrets. A missing one is reported and left out: the image may not need it.
func (im *images) pullSecrets(ctx context.Context, pod *corev1.Pod) []corev1.Secret {
	var secrets []corev1.Secret
	var missing []string
	for _, ref := range pod.Spec.ImagePullSecrets {
		if im.sources == nil || ref.Name == "" {
			continue
		}
		secret, err := im.sources.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, *secret)
	}
	if len(missing) > 0 {
		im.report.Event(pod, "", corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
				strings.Join(missing, ", ")))
	}
	return secrets
}

// imageVolumes makes the image volumes that the container mounts present (KEP-4639).
func (im *images) imageVolumes(ctx context.Context, s worker.Snapshot,
	c *corev1.Container,
) (map[string]*runtimeapi.ImageSpec, error) {
	specs := map[string]*runtimeapi.ImageSpec{}
	for i := range s.Pod.Spec.Volumes {
		v := &s.Pod.Spec.Volumes[i]
		if v.Image == nil || !mounts(c, v.Name) {
			continue
		}
		got, err := im.image(ctx, s, image.Request{
			Container: events.FieldPath(s.Pod, c.Name), Image: v.Image.Reference,
			Policy: v.Image.PullPolicy,
		})
		if err != nil {
			return nil, err
		}
		specs[v.Name] = &runtimeapi.ImageSpec{
			Image: got.Ref, UserSpecifiedImage: v.Image.Reference,
			Annotations: s.Pod.Annotations,
		}
	}
	return specs, nil
}

func mounts(c *corev1.Container, volume string) bool {
	for i := range c.VolumeMounts {
		if c.VolumeMounts[i].Name == volume {
			return true
		}
	}
	return false
}
