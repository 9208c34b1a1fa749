package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/image/pullrecords"
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

func (f *fakeRuntime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	pod *runtimeapi.PodSandboxConfig,
) (string, error) {
	f.mu.Lock()
	f.pulls = append(f.pulls, image.Image+"@"+auth.GetUsername()+pod.GetMetadata().GetNamespace())
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
		if cfg.Records, err = pullrecords.Open(pullrecords.Config{
			RootDir: t.TempDir(),
			Log:     slog.New(slog.DiscardHandler),
		}); err != nil {
			t.Fatal(err)
		}
	}
	cfg.MaxParallel = cmp.Or(cfg.MaxParallel, 4)
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
