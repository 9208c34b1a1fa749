package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/pulled"
)

// fakeRuntime is an image store whose pulls take time, and fail as told.
type fakeRuntime struct {
	mu      sync.Mutex
	images  map[string]*runtimeapi.Image
	status  error
	pulling time.Duration
	// fail gives the error of a pull.
	fail func(image string, auth *runtimeapi.AuthConfig) error

	pulls    []string
	statuses int
	now, max int
	ended    []error
}

func (f *fakeRuntime) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses++
	return f.images[image.Image], f.status
}

func (f *fakeRuntime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	f.pulls = append(f.pulls, image.Image+"@"+auth.GetUsername())
	f.now++
	f.max = max(f.max, f.now)
	f.mu.Unlock()
	err := f.transfer(ctx, image.Image, auth)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now--
	f.ended = append(f.ended, err)
	if err != nil {
		return "", err
	}
	f.images[image.Image] = &runtimeapi.Image{Id: "sha256:" + image.Image, Size: 42, Uid: &runtimeapi.Int64Value{Value: 7}}
	return "sha256:" + image.Image, nil
}

func (f *fakeRuntime) transfer(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error {
	if f.pulling > 0 {
		select {
		case <-time.After(f.pulling):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if f.fail != nil {
		return f.fail(image, auth)
	}
	return nil
}

// events collects Events as lines.
type events struct {
	mu    sync.Mutex
	lines []string
}

func (e *events) record(ev Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, fmt.Sprintf("%s %s %s", ev.Type, ev.Reason, ev.Message))
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.lines
	e.lines = nil
	return out
}

func newTest(t *testing.T, cfg Config) (*Puller, *fakeRuntime, *events) {
	t.Helper()
	if cfg.Records == nil {
		var err error
		if cfg.Records, err = pulled.Open(pulled.Config{RootDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
	}
	rt, ev := &fakeRuntime{images: map[string]*runtimeapi.Image{}}, &events{}
	return New(cfg, rt, ev.record), rt, ev
}

func request(uid, image string, policy corev1.PullPolicy) Request {
	return Request{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, Image: image, Policy: policy}
}

func wantError(t *testing.T, err error, reason, message string) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want an *Error", err)
	}
	if e.Reason != reason || e.Message != message {
		t.Errorf("got %s: %s\nwant %s: %s", e.Reason, e.Message, reason, message)
	}
	return e
}

func wantEvents(t *testing.T, ev *events, want ...string) {
	t.Helper()
	if got := ev.take(); !slices.Equal(got, want) {
		t.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestPresentImageIsNotPulled(t *testing.T) {
	for _, policy := range []corev1.PullPolicy{corev1.PullIfNotPresent, corev1.PullNever, ""} {
		p, rt, ev := newTest(t, Config{})
		rt.images["nginx:1"] = &runtimeapi.Image{Id: "sha256:x", Username: "www"}
		got, err := p.Ensure(t.Context(), request("u", "nginx:1", policy))
		if err != nil || got != (Image{Ref: "sha256:x", Username: "www"}) {
			t.Errorf("%q: got %+v, %v", policy, got, err)
		}
		if len(rt.pulls) != 0 || rt.statuses != 1 {
			t.Errorf("%q: %d pulls and %d status calls", policy, len(rt.pulls), rt.statuses)
		}
		wantEvents(t, ev, `Normal Pulled Container image "nginx:1" already present on machine and can be accessed by the pod`)
	}
}

func TestPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := newTest(t, Config{})
		rt.pulling = 1500 * time.Millisecond
		got, err := p.Ensure(t.Context(), request("u", "nginx", corev1.PullIfNotPresent))
		if err != nil || got.Ref != "sha256:nginx:latest" || got.UID == nil || *got.UID != 7 {
			t.Errorf("got %+v, %v", got, err)
		}
		wantEvents(t, ev, `Normal Pulling Pulling image "nginx"`,
			`Normal Pulled Successfully pulled image "nginx" in 1.5s (1.5s including waiting). Image size: 42 bytes.`)

		// Always, and latest without a policy, ask the registry again.
		for _, policy := range []corev1.PullPolicy{corev1.PullAlways, ""} {
			if _, err := p.Ensure(t.Context(), request("u", "nginx", policy)); err != nil {
				t.Fatal(err)
			}
		}
		if len(rt.pulls) != 3 {
			t.Errorf("pulls: %v", rt.pulls)
		}
	})
}

// What is measured: each wish with what is known of the image, and each pull once for each pod that waited for it.
func TestWishesAndPullsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		p, rt, _ := newTest(t, Config{
			Asked: func(policy corev1.PullPolicy, present, pull *bool) {
				text := func(b *bool) string {
					if b == nil {
						return "unknown"
					}
					return strconv.FormatBool(*b)
				}
				told = append(told, fmt.Sprintf("%s %s %s", policy, text(present), text(pull)))
			},
			Pulled: func(pod *corev1.Pod, asked time.Time, size uint64) {
				told = append(told, fmt.Sprintf("%s pulled since %v, %d bytes", pod.UID, time.Since(asked), size))
			},
		})
		rt.images["here:1"] = &runtimeapi.Image{Id: "sha256:x"}
		for _, r := range []Request{
			request("u1", "here:1", corev1.PullIfNotPresent), request("u1", "gone:1", corev1.PullNever), request("u1", "gone:1", corev1.PullAlways),
		} {
			_, _ = p.Ensure(t.Context(), r)
		}
		want := []string{"IfNotPresent true false", "Never false unknown", "u1 pulled since 0s, 42 bytes", "Always unknown true"}
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

func TestErrorsWithoutAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := newTest(t, Config{})
		_, err := p.Ensure(t.Context(), request("u", "a:b:c", ""))
		message := `Failed to apply default image tag "a:b:c": couldn't parse image name "a:b:c": invalid reference format`
		if e := wantError(t, err, "InvalidImageName", message); !e.RetryAt.IsZero() {
			t.Error("an invalid name is to be tried again")
		}
		wantEvents(t, ev, "Warning InspectFailed "+message, "Warning Failed Error: InvalidImageName")

		_, err = p.Ensure(t.Context(), request("u", "nginx", corev1.PullNever))
		message = `Container image "nginx" is not present with pull policy of Never`
		wantError(t, err, "ErrImageNeverPull", message)
		wantEvents(t, ev, "Warning ErrImageNeverPull "+message, "Warning Failed Error: ErrImageNeverPull")

		rt.status = status.Error(codes.Unavailable, "gone")
		_, err = p.Ensure(t.Context(), request("u", "nginx:1", corev1.PullIfNotPresent))
		message = `Failed to inspect image "nginx:1": rpc error: code = Unavailable desc = gone`
		if e := wantError(t, err, "ImageInspectError", message); !e.RetryAt.After(time.Now()) {
			t.Error("no time for another try")
		}
	})
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := newTest(t, Config{})
		rt.fail = func(string, *runtimeapi.AuthConfig) error { return status.Error(codes.NotFound, "no such image") }
		req := request("u", "nginx:1", corev1.PullIfNotPresent)
		text := "rpc error: code = NotFound desc = no such image"
		for _, seconds := range []int{10, 20, 40, 80, 160, 300, 300} {
			delay := time.Duration(seconds) * time.Second
			_, err := p.Ensure(t.Context(), req)
			e := wantError(t, err, "ErrImagePull", text)
			if got := time.Until(e.RetryAt); got != delay {
				t.Fatalf("retry in %v, want %v", got, delay)
			}
			wantEvents(t, ev, `Normal Pulling Pulling image "nginx:1"`, `Warning Failed Failed to pull image "nginx:1": `+text, "Warning Failed Error: ErrImagePull")

			time.Sleep(delay - time.Millisecond)
			_, err = p.Ensure(t.Context(), req)
			e = wantError(t, err, "ImagePullBackOff", `Back-off pulling image "nginx:1": ErrImagePull: `+text)
			if got := time.Until(e.RetryAt); got != time.Millisecond {
				t.Fatalf("retry in %v, want 1ms", got)
			}
			wantEvents(t, ev, `Normal BackOff Back-off pulling image "nginx:1"`, "Warning Failed Error: ImagePullBackOff")
			time.Sleep(time.Millisecond)
		}
		if len(rt.pulls) != 7 {
			t.Errorf("%d pulls", len(rt.pulls))
		}
		// Another pod doesn't wait for this one's back-off, and a long silence or a success ends it.
		_, err := p.Ensure(t.Context(), request("other", "nginx:1", corev1.PullIfNotPresent))
		wantError(t, err, "ErrImagePull", text)
		time.Sleep(forgetAfter + time.Second)
		_, err = p.Ensure(t.Context(), req)
		if e := wantError(t, err, "ErrImagePull", text); time.Until(e.RetryAt) != firstDelay {
			t.Errorf("after a long silence: retry in %v", time.Until(e.RetryAt))
		}
		time.Sleep(firstDelay)
		rt.fail = nil
		if _, err := p.Ensure(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		p.Forget(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "other"}})
		if len(p.backoff) != 0 {
			t.Errorf("still remembered: %v", p.backoff)
		}
	})
}

func TestPresentImageIgnoresBackoff(t *testing.T) {
	p, rt, _ := newTest(t, Config{})
	rt.fail = func(string, *runtimeapi.AuthConfig) error { return errors.New("no") }
	req := request("u", "nginx:1", corev1.PullIfNotPresent)
	if _, err := p.Ensure(t.Context(), req); err == nil {
		t.Fatal("the pull didn't fail")
	}
	rt.images["nginx:1"] = &runtimeapi.Image{Id: "x"}
	if got, err := p.Ensure(t.Context(), req); err != nil || got.Ref != "x" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRuntimesOwnReasons(t *testing.T) {
	p, rt, _ := newTest(t, Config{})
	for text, want := range map[string][2]string{
		"RegistryUnavailable: down":       {"RegistryUnavailable", "image pull failed for nginx:1 because the registry is unavailable: down"},
		"SignatureValidationFailed: bad":  {"SignatureValidationFailed", "image pull failed for nginx:1 because the signature validation failed: bad"},
		"something RegistryUnavailable x": {"ErrImagePull", "something RegistryUnavailable x"},
	} {
		rt.fail = func(string, *runtimeapi.AuthConfig) error { return status.Error(codes.Unknown, text) }
		_, err := p.Ensure(t.Context(), request(text, "nginx:1", corev1.PullAlways))
		wantError(t, err, want[0], want[1])
	}
}

// ensureAll runs requests side by side and waits for all.
func ensureAll(t *testing.T, p *Puller, reqs ...Request) []error {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(reqs))
	for i, req := range reqs {
		wg.Go(func() { _, errs[i] = p.Ensure(t.Context(), req) })
	}
	wg.Wait()
	return errs
}

func TestOnePullForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := newTest(t, Config{})
		rt.pulling = time.Second
		var reqs []Request
		for i := range 10 {
			reqs = append(reqs, request(fmt.Sprint("u", i), "nginx:1", corev1.PullAlways))
		}
		private := request("p", "nginx:1", corev1.PullAlways)
		private.Secrets = []corev1.Secret{dockerSecret(`{"auths":{"docker.io":{"username":"me","password":"x"}}}`)}
		if err := errors.Join(ensureAll(t, p, append(reqs, private)...)...); err != nil {
			t.Fatal(err)
		}
		slices.Sort(rt.pulls)
		if !slices.Equal(rt.pulls, []string{"nginx:1@", "nginx:1@me"}) {
			t.Errorf("pulls: %v", rt.pulls)
		}
		if n := len(ev.take()); n != 22 {
			t.Errorf("%d events, want two for each of the eleven", n)
		}
		if len(p.flights) != 0 {
			t.Errorf("flights left: %v", p.flights)
		}
	})
}

func TestSharedFailureCountsOnceForAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, _ := newTest(t, Config{})
		rt.pulling, rt.fail = time.Second, func(string, *runtimeapi.AuthConfig) error { return errors.New("no") }
		req := request("u", "nginx:1", corev1.PullAlways)
		for _, err := range ensureAll(t, p, req, req, req) {
			if e := wantError(t, err, "ErrImagePull", "no"); time.Until(e.RetryAt) != firstDelay {
				t.Errorf("retry in %v, want %v", time.Until(e.RetryAt), firstDelay)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reqs []Request
		for i := range 8 {
			reqs = append(reqs, request("u", fmt.Sprintf("image%d:1", i), corev1.PullIfNotPresent))
		}
		for parallel, want := range map[int]time.Duration{0: 2 * time.Second, 1: 8 * time.Second, 8: time.Second} {
			p, rt, _ := newTest(t, Config{MaxParallel: parallel})
			rt.pulling = time.Second
			began := time.Now()
			if err := errors.Join(ensureAll(t, p, reqs...)...); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want || rt.max > max(parallel, DefaultMaxParallel) {
				t.Errorf("%d in parallel: took %v, want %v; %d at a time", parallel, took, want, rt.max)
			}
		}
		p, _, _ := newTest(t, Config{MaxParallel: 8, QPS: 2, Burst: 2})
		began := time.Now()
		if err := errors.Join(ensureAll(t, p, reqs...)...); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("8 pulls at 2 a second after a burst of 2 took %v, want 3s", took)
		}
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := newTest(t, Config{MaxParallel: 1})
		rt.pulling = time.Minute
		cause := errors.New("the pod is gone")
		first, cancelFirst := context.WithCancelCause(t.Context())
		second, cancelSecond := context.WithCancelCause(t.Context())
		results := make(chan error, 3)
		ensure := func(ctx context.Context, image string) {
			_, err := p.Ensure(ctx, request("u", image, corev1.PullAlways))
			results <- err
		}
		go ensure(first, "nginx:1")
		go ensure(second, "nginx:1")
		synctest.Wait()
		go ensure(second, "queued:1")
		synctest.Wait()
		ev.take()

		cancelFirst(cause)
		if err := <-results; !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if len(rt.ended) != 0 {
			t.Error("the pull ended with the first who waited")
		}
		cancelSecond(cause)
		for range 2 {
			if err := <-results; !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		}
		if len(rt.ended) != 1 || status.Code(rt.ended[0]) != codes.Canceled || len(rt.pulls) != 1 {
			t.Errorf("pulls %v ended with %v", rt.pulls, rt.ended)
		}
		if len(p.flights) != 0 || len(p.slots) != 0 || len(p.backoff) != 0 {
			t.Error("a cancelled pull left something behind")
		}
		wantEvents(t, ev)
	})
}

func TestEveryCredentialIsTried(t *testing.T) {
	p, rt, _ := newTest(t, Config{})
	rt.fail = func(_ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetUsername() == "good" {
			return nil
		}
		return status.Error(codes.Unknown, "denied for "+auth.GetUsername())
	}
	req := request("u", "reg.example/team/app:1", corev1.PullIfNotPresent)
	req.Secrets = []corev1.Secret{
		dockerSecret(`{"auths":{"reg.example":{"username":"bad"}}}`), dockerSecret(`{"auths":{"reg.example/team":{"username":"worse"}}}`),
		dockerSecret(`{"auths":{"reg.example":{"username":"good"},"other.example":{"username":"other"}}}`),
	}
	if _, err := p.Ensure(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	want := []string{"reg.example/team/app:1@worse", "reg.example/team/app:1@bad", "reg.example/team/app:1@good"}
	if !slices.Equal(rt.pulls, want) {
		t.Errorf("got %v, want %v", rt.pulls, want)
	}

	req.Image, req.Secrets = "reg.example/team/app:2", append(req.Secrets[:2], dockerSecret("not JSON: s3cret"))
	req.Secrets[2].Namespace, req.Secrets[2].Name = "ns", "broken"
	_, err := p.Ensure(t.Context(), req)
	wantError(t, err, "ErrImagePull", "[denied for worse, denied for bad]; pull secret ns/broken: not a docker config.json")
}

func dockerSecret(text string) corev1.Secret {
	return corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)}}
}
