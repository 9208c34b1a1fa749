package image

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pulled is how a pull has gone.
type pulled struct {
	began time.Time
	// pulling is the time that the pull took, without the wait for its turn.
	pulling time.Duration
	image   *runtimeapi.Image
	ref     string
}

// pullSpec is what one pull is about.
type pullSpec struct {
	image       *runtimeapi.ImageSpec
	credentials []credential
	sandbox     *runtimeapi.PodSandboxConfig
}

// key is the same for pulls that can be one. Records know images by the name in the spec. A runtime may have policies
// by namespace, and containerd takes the snapshotter of a runtime class by an annotation.
func (s *pullSpec) key() string {
	return strings.Join([]string{
		s.image.UserSpecifiedImage, s.image.RuntimeHandler, fingerprint(s.credentials),
		s.sandbox.GetMetadata().GetNamespace(), s.sandbox.GetAnnotations()["io.containerd.cri.runtime-handler"],
	}, "\x00")
}

// inTurn does one pull, in its turn. Of one that fails, only its beginning is known.
func (p *Puller) inTurn(ctx context.Context, spec *pullSpec) (pulled, error) {
	done := pulled{began: time.Now()}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return done, context.Cause(ctx)
	}
	if err := p.limiter.Wait(ctx); err != nil {
		return done, err
	}
	err := p.pullRecorded(ctx, &done, spec)
	return done, err
}

// pullRecorded pulls with a record of who has brought the image (KEP-2535).
func (p *Puller) pullRecorded(ctx context.Context, done *pulled, spec *pullSpec) error {
	image := spec.image.UserSpecifiedImage
	before, err := p.runtime.ImageStatus(ctx, spec.image)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := p.cfg.Records.Begin(image); err != nil {
		return err
	}
	began := time.Now()
	ref, used, err := p.pull(ctx, spec)
	if err != nil {
		// One that was broken off may bring the image nevertheless, but if it was there before it is as it was.
		p.cfg.Records.Failed(image, ctx.Err() == nil || before != nil)
		return err
	}
	done.ref, done.pulling = ref, time.Since(began)
	done.image, err = p.inspectPulled(ctx, spec.image)
	p.cfg.Records.Came(image, used.whose(), ref, done.image.GetId())
	return err
}

// pull tries the credentials in turn; without any, the registry is asked as anybody. It returns the credential
// that was good.
func (p *Puller) pull(ctx context.Context, spec *pullSpec) (ref string, used credential, err error) {
	candidates := spec.credentials
	if len(candidates) == 0 {
		candidates = []credential{{}}
	}
	var failures []string
	for _, c := range candidates {
		ref, err := p.runtime.PullImage(ctx, spec.image, c.auth, spec.sandbox)
		if err == nil {
			return ref, c, nil
		}
		if ctx.Err() != nil {
			return "", credential{}, context.Cause(ctx)
		}
		if text := runtimeText(err); !slices.Contains(failures, text) {
			failures = append(failures, text)
		}
	}
	if len(failures) == 1 {
		return "", credential{}, errors.New(failures[0])
	}
	return "", credential{}, errors.New("[" + strings.Join(failures, ", ") + "]")
}

// inspectPulled learns whom the image runs as, without which no container may be made from it.
func (p *Puller) inspectPulled(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	image, err := p.runtime.ImageStatus(ctx, spec)
	switch {
	case err != nil:
		return nil, errors.New("inspect the pulled image: " + runtimeText(err))
	case image == nil:
		return nil, errors.New("inspect the pulled image: the runtime no longer has it")
	}
	return image, nil
}

// runtimeText gives the runtime's answer in the form in which the kubelet shows it: its own words, and the code
// where it says more than Unknown.
func runtimeText(err error) string {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err.Error()
	case s.Code() == codes.Unknown:
		return s.Message()
	}
	return s.Err().Error()
}
