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

// errAbandoned ends a pull that nobody waits for any more.
var errAbandoned = errors.New("no pod waits for the image any more")

// inflightPull is one pull, and all who wait for it. waiters is under the Puller's lock; the results are
// written before done is closed.
type inflightPull struct {
	key     string
	cancel  context.CancelCauseFunc
	waiters int
	done    chan struct{}

	began time.Time
	// pulling is the time that the pull took, without the wait for its turn.
	pulling time.Duration
	image   *runtimeapi.Image
	ref     string
	err     error
}

// pullSpec is what one pull is about.
type pullSpec struct {
	image       *runtimeapi.ImageSpec
	credentials []credential
	sandbox     *runtimeapi.PodSandboxConfig
}

// key is the same for pulls that can be one. Records know images by the name in the spec.
func (s *pullSpec) key() string {
	return strings.Join([]string{s.image.UserSpecifiedImage, s.image.RuntimeHandler, fingerprint(s.credentials)}, "\x00")
}

// await joins the pull of the image, or begins one, and waits for its end. When the last one gives up, the pull ends.
func (p *Puller) await(ctx context.Context, spec *pullSpec) (*inflightPull, error) {
	f := p.join(ctx, spec)
	select {
	case <-f.done:
		p.leave(f)
		return f, nil
	case <-ctx.Done():
		if p.leave(f) {
			f.cancel(errAbandoned)
			<-f.done
		}
		return nil, context.Cause(ctx)
	}
}

func (p *Puller) join(ctx context.Context, spec *pullSpec) *inflightPull {
	key := spec.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.inflight[key]
	if f == nil {
		f = &inflightPull{key: key, done: make(chan struct{}), began: time.Now()}
		var pullCtx context.Context
		// The pull belongs to all who wait: it must not end with the first one's context.
		pullCtx, f.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
		p.inflight[key] = f
		go p.run(pullCtx, f, spec)
	}
	f.waiters++
	return f
}

// leave reports whether nobody is left. Nobody joins a pull that is over or abandoned.
func (p *Puller) leave(f *inflightPull) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.waiters--
	if f.waiters == 0 && p.inflight[f.key] == f {
		delete(p.inflight, f.key)
	}
	return f.waiters == 0
}

// run does one pull, in its turn.
func (p *Puller) run(ctx context.Context, f *inflightPull, spec *pullSpec) {
	defer func() {
		p.mu.Lock()
		if p.inflight[f.key] == f {
			delete(p.inflight, f.key)
		}
		p.mu.Unlock()
		f.cancel(nil)
		close(f.done)
	}()
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		f.err = context.Cause(ctx)
		return
	}
	if f.err = p.limiter.Wait(ctx); f.err != nil {
		return
	}
	f.err = p.pullRecorded(ctx, f, spec)
}

// pullRecorded pulls with a record of who has brought the image (KEP-2535).
func (p *Puller) pullRecorded(ctx context.Context, f *inflightPull, spec *pullSpec) error {
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
	f.ref, f.pulling = ref, time.Since(began)
	f.image, err = p.inspectPulled(ctx, spec.image)
	p.cfg.Records.Came(image, used.whose(), ref, f.image.GetId())
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
