package image

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/kube/credentialprovider"
	"kubelot.dev/kube/flight"
	"kubelot.dev/services/podsync/internal/image/pullrecords"
)

// Runtime is the part of the CRI client that pulls need.
type Runtime interface {
	// ImageStatus gives nil when the image isn't there.
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// Providers are credential providers. Asking them may take a minute, and ends with ctx.
type Providers interface {
	Credentials(ctx context.Context, repository string, pod *corev1.Pod) ([]credentialprovider.Credential, []error)
}

// Config are the settings of a Puller.
type Config struct {
	// MaxParallel bounds the pulls that run at a time; less than 1 means one.
	MaxParallel int
	// QPS and Burst bound how often pulls begin (registryPullQPS, registryBurst); QPS 0 means no bound. A pull
	// over the bound waits for its turn; the kubelet would let it fail.
	QPS   float64
	Burst int
	// CredentialDirs are searched for config.json and .dockercfg, the first file found counts.
	CredentialDirs []string
	// Pulled is called for each pull that succeeded: since when the pod asked for it, and the image's size in bytes. It
	// must not block; nil means that nobody asks.
	Pulled func(pod *corev1.Pod, asked time.Time, size uint64)
	// Asked is called for each request for an image: its policy, whether the image is there, and whether it has to be
	// pulled, each nil where that isn't known. It is as Pulled.
	Asked func(policy corev1.PullPolicy, present, pull *bool)
	// Providers are asked for credentials besides those of pod and node; nil if there are none.
	Providers Providers
	// Records know who may use the images that are there, and record pulls.
	Records *pullrecords.Records
}

const (
	// inspectRetry and neverRetry are when to look again after a runtime that didn't answer, and for an image that
	// somebody else must bring.
	inspectRetry = 2 * time.Second
	neverRetry   = 10 * time.Second
)

// Event is a Kubernetes Event about a container's image.
type Event struct {
	Pod *corev1.Pod
	// FieldPath is the Request's.
	FieldPath string
	// Type is Normal or Warning.
	Type    string
	Reason  string
	Message string
}

// Request asks for an image.
type Request struct {
	Pod *corev1.Pod
	// FieldPath is what the Events about the image are about: a container, such as spec.containers{app}, or for the image
	// of a volume the whole pod, which is empty.
	FieldPath string
	// Container is the field path of the container that can't run without the image.
	Container string
	// Image is the reference as in the spec.
	Image string
	// Policy is the container's; empty means what the API server would have filled in.
	Policy  corev1.PullPolicy
	Secrets []corev1.Secret
	// Sandbox is what the runtime is told of the pod.
	Sandbox *runtimeapi.PodSandboxConfig
	// RuntimeHandler is the pod's; empty for the default.
	RuntimeHandler string
	// Anew ends the back-off of earlier pulls: the next failure counts as the first.
	Anew bool
}

// Image is an image on the node.
type Image struct {
	// Ref is what containers are created from and image volumes are mounted by: the runtime's image ID.
	Ref string
	// UID and Username are whom the image runs as; at most one is set, neither means root.
	UID      *int64
	Username string
}

// Puller gets images. Its methods may be called from any goroutine.
type Puller struct {
	cfg     Config
	runtime Runtime
	record  func(Event)
	// slots has a place for each pull that may run; waiting senders are served first come first served.
	slots   chan struct{}
	limiter *rate.Limiter
	// pulls are those under way, which all who want the same image wait for.
	pulls flight.Group[pulled]

	// mu guards what is below; it's never held over a call.
	mu      sync.Mutex
	backoff backoff
}

// New makes a Puller that reports Events to record, which must not block.
func New(cfg Config, rt Runtime, record func(Event)) *Puller {
	return &Puller{
		cfg: cfg, runtime: rt, record: record,
		slots: make(chan struct{}, max(cfg.MaxParallel, 1)), limiter: rate.NewLimiter(cfg.limit(), cfg.burst()),
		backoff: backoff{},
	}
}

// SetRate changes how often pulls begin, to QPS and Burst of the configuration. Pulls that wait already keep their
// turn.
func (p *Puller) SetRate(cfg Config) {
	p.limiter.SetBurst(cfg.burst())
	p.limiter.SetLimit(cfg.limit())
}

func (c Config) limit() rate.Limit {
	if c.QPS <= 0 {
		return rate.Inf
	}
	return rate.Limit(c.QPS)
}

func (c Config) burst() int { return max(c.Burst, 1) }

// imageRequest is a Request under way.
type imageRequest struct {
	Request
	name name
	spec *runtimeapi.ImageSpec
	// credentials are those of the pod for the image, read when they are first needed, and what is wrong with others.
	credentials func() (list []credential, problems []string)
	// present and pull are what is found out, nil as long as it isn't.
	present, pull *bool
}

// Ensure makes the image present as the policy asks, and sure that the pod may use it. Every error but ctx's cause is
// an *Error.
func (p *Puller) Ensure(ctx context.Context, req Request) (Image, error) {
	w := &imageRequest{Request: req}
	defer p.tellAsked(w)
	var err error
	if w.name, err = parseName(req.Image); err != nil {
		return Image{}, p.fail(req, "InspectFailed", &Error{
			Reason: ReasonInvalidName, Message: fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err),
		})
	}
	w.spec = &runtimeapi.ImageSpec{
		Image: w.name.full, UserSpecifiedImage: req.Image, RuntimeHandler: req.RuntimeHandler,
		Annotations: req.Pod.Annotations,
	}
	w.Policy = policyFor(req.Policy, w.name)
	w.credentials = sync.OnceValues(func() ([]credential, []string) { return p.credentials(ctx, w) })
	if w.Policy != corev1.PullAlways {
		image, err := p.findUsable(ctx, w)
		if err != nil {
			return Image{}, err
		}
		if image != nil {
			p.event(req, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Container image %q already present on machine and can "+
				"be accessed by the pod", req.Image))
			return toImage(image.Id, image), nil
		}
	}
	w.pull = new(true)
	return p.ensurePulled(ctx, w)
}

// findUsable gives the image if it is there and the pod may use it; nil without an error asks for a pull. That an image
// is there isn't told to who may not use it.
func (p *Puller) findUsable(ctx context.Context, w *imageRequest) (*runtimeapi.Image, error) {
	image, err := p.runtime.ImageStatus(ctx, w.spec)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, p.fail(w.Request, "InspectFailed", &Error{
			Reason: ReasonInspect, Message: fmt.Sprintf("Failed to inspect image %q: %s", w.Image, runtimeText(err)),
			RetryAt: time.Now().Add(inspectRetry),
		})
	}
	w.present = new(image != nil)
	if image != nil {
		may := p.cfg.Records.Check(w.Image, image.Id, w.shown)
		if w.pull = new(!may); may {
			return image, nil
		}
	}
	if w.Policy == corev1.PullNever {
		return nil, p.fail(w.Request, ReasonNeverPull, &Error{
			Reason: ReasonNeverPull, Message: fmt.Sprintf("Container image %q is not present with pull policy of Never",
				w.Image), RetryAt: time.Now().Add(neverRetry),
		})
	}
	return nil, nil
}

// credentials are those of the pod's secrets, then of the node, then of credential providers.
func (p *Puller) credentials(ctx context.Context, w *imageRequest) (list []credential, problems []string) {
	ring, problems := credentialsOf(w.Secrets, p.cfg.CredentialDirs)
	if p.cfg.Providers == nil {
		return ring.lookup(w.name.repository), problems
	}
	var provided keyring
	answers, failed := p.cfg.Providers.Credentials(ctx, w.name.repository, w.Pod)
	problems = append(problems, provided.addProvided(answers)...)
	for _, err := range failed {
		problems = append(problems, err.Error())
	}
	return append(ring.lookup(w.name.repository), provided.sorted().lookup(w.name.repository)...), problems
}

// shown are what records know of the pod's own credentials.
func (w *imageRequest) shown() pullrecords.Credentials {
	var all pullrecords.Credentials
	credentials, _ := w.credentials()
	for _, c := range credentials {
		whose := c.whose()
		all.KubernetesSecrets = append(all.KubernetesSecrets, whose.KubernetesSecrets...)
		all.KubernetesServiceAccounts = append(all.KubernetesServiceAccounts, whose.KubernetesServiceAccounts...)
	}
	return all
}

func (p *Puller) tellAsked(w *imageRequest) {
	if p.cfg.Asked != nil {
		p.cfg.Asked(w.Policy, w.present, w.pull)
	}
}

// ensurePulled pulls the image unless it's too early for another try.
func (p *Puller) ensurePulled(ctx context.Context, w *imageRequest) (Image, error) {
	req := w.Request
	if err := p.refuseEarly(req); err != nil {
		return Image{}, err
	}
	p.event(req, corev1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", req.Image))
	credentials, problems := w.credentials()
	began := time.Now()
	spec := &pullSpec{image: w.spec, credentials: credentials, sandbox: req.Sandbox}
	done, err := p.pulls.Do(ctx, spec.key(), func(ctx context.Context) (pulled, error) { return p.inTurn(ctx, spec) })
	switch {
	case err != nil && ctx.Err() != nil:
		return Image{}, context.Cause(ctx)
	case err != nil:
		return Image{}, p.pullFailed(req, done.began, append([]string{err.Error()}, problems...))
	}
	p.mu.Lock()
	p.backoff.succeeded(req.Pod.UID, req.Image)
	p.mu.Unlock()
	if p.cfg.Pulled != nil {
		p.cfg.Pulled(req.Pod, began, done.image.Size)
	}
	p.event(req, corev1.EventTypeNormal, "Pulled", fmt.Sprintf("Successfully pulled image %q in %v (%v including "+
		"waiting). Image size: %d bytes.",
		req.Image, done.pulling.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), done.image.Size))
	return toImage(done.ref, done.image), nil
}

// refuseEarly gives the error of a pull that has to wait, and reports it.
func (p *Puller) refuseEarly(req Request) error {
	p.mu.Lock()
	if req.Anew {
		p.backoff.succeeded(req.Pod.UID, req.Image)
	}
	last, waiting := p.backoff.waiting(req.Pod.UID, req.Image, time.Now())
	p.mu.Unlock()
	if !waiting {
		return nil
	}
	text := fmt.Sprintf("Back-off pulling image %q", req.Image)
	p.event(req, corev1.EventTypeNormal, "BackOff", text)
	p.tellFailed(req, ReasonBackOff)
	return &Error{
		Reason: ReasonBackOff, Message: fmt.Sprintf("%s: %s: %s", text, last.reason, last.message),
		RetryAt: last.retryAt(),
	}
}

// pullFailed counts and reports a failed pull, which began then.
func (p *Puller) pullFailed(req Request, began time.Time, problems []string) error {
	text := strings.Join(problems, "; ")
	reason, message := explain(req.Image, text)
	p.mu.Lock()
	last := p.backoff.failed(req.Pod.UID, req.Image, began, time.Now(), Error{Reason: reason, Message: message})
	p.mu.Unlock()
	p.event(req, corev1.EventTypeWarning, "Failed", fmt.Sprintf("Failed to pull image %q: %s", req.Image, text))
	p.tellFailed(req, reason)
	return &Error{Reason: reason, Message: message, RetryAt: last.retryAt()}
}

// fail reports an error that isn't a pull's: its cause under a reason of its own, then that the container failed.
func (p *Puller) fail(req Request, reason string, err *Error) error {
	p.event(req, corev1.EventTypeWarning, reason, err.Message)
	p.tellFailed(req, err.Reason)
	return err
}

// tellFailed reports that the container failed.
func (p *Puller) tellFailed(req Request, reason string) {
	p.record(Event{
		Pod: req.Pod, FieldPath: req.Container, Type: corev1.EventTypeWarning, Reason: "Failed",
		Message: "Error: " + reason,
	})
}

func (p *Puller) event(req Request, kind, reason, message string) {
	p.record(Event{Pod: req.Pod, FieldPath: req.FieldPath, Type: kind, Reason: reason, Message: message})
}

// Forget drops what is remembered about a pod that is gone.
func (p *Puller) Forget(pod *corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.backoff, pod.UID)
}

func toImage(ref string, image *runtimeapi.Image) Image {
	out := Image{Ref: ref, Username: image.Username}
	if out.Ref == "" {
		out.Ref = image.Id
	}
	if image.Uid != nil {
		uid := image.Uid.Value
		out.UID, out.Username = &uid, ""
	}
	return out
}
