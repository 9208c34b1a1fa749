package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
		// The runtime is told for whom it pulls, since it may refuse the image to some namespaces only.
		other := request("o", "nginx:1", corev1.PullAlways)
		other.Sandbox = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "other"}}
		private.Secrets = []corev1.Secret{dockerSecret(`{"auths":{"docker.io":{"username":"me","password":"x"}}}`)}
		if err := errors.Join(ensureAll(t, p, append(reqs, private, other)...)...); err != nil {
			t.Fatal(err)
		}
		slices.Sort(rt.pulls)
		if !slices.Equal(rt.pulls, []string{"nginx:1@", "nginx:1@me", "nginx:1@other"}) {
			t.Errorf("pulls: %v", rt.pulls)
		}
		if n := len(ev.take()); n != 24 {
			t.Errorf("%d events, want two for each of the twelve", n)
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
		of := func(tag string) (reqs []Request) {
			for i := range 8 {
				reqs = append(reqs, request("u", fmt.Sprintf("image%d:%s", i, tag), corev1.PullIfNotPresent))
			}
			return reqs
		}
		reqs := of("1")
		for parallel, want := range map[int]time.Duration{4: 2 * time.Second, 1: 8 * time.Second, 8: time.Second} {
			p, rt, _ := newTest(t, Config{MaxParallel: parallel})
			rt.pulling = time.Second
			began := time.Now()
			if err := errors.Join(ensureAll(t, p, reqs...)...); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != want || rt.max > parallel {
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
		for _, c := range []struct {
			rate Config
			tag  string
			want time.Duration
		}{{Config{QPS: 4, Burst: 1}, "2", 1750 * time.Millisecond}, {Config{}, "3", 0}} {
			p.SetRate(c.rate)
			time.Sleep(time.Hour) // as many may begin at once as ever
			began := time.Now()
			if err := errors.Join(ensureAll(t, p, of(c.tag)...)...); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("8 pulls at a changed rate of %v after a burst of %d took %v, want %v", c.rate.QPS, c.rate.Burst, took,
					c.want)
			}
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
		third, cancelThird := context.WithCancelCause(t.Context())
		results := make(chan error, 3)
		ensure := func(ctx context.Context, image string) {
			_, err := p.Ensure(ctx, request("u", image, corev1.PullAlways))
			results <- err
		}
		go ensure(first, "nginx:1")
		go ensure(second, "nginx:1")
		synctest.Wait()
		go ensure(third, "queued:1")
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
		// The queued one ends before there is room for it: after that it might begin.
		for _, end := range []context.CancelCauseFunc{cancelThird, cancelSecond} {
			end(cause)
			if err := <-results; !errors.Is(err, cause) {
				t.Errorf("got %v", err)
			}
		}
		if len(rt.ended) != 1 || status.Code(rt.ended[0]) != codes.Canceled || len(rt.pulls) != 1 {
			t.Errorf("pulls %v ended with %v", rt.pulls, rt.ended)
		}
		if len(p.slots) != 0 || len(p.backoff) != 0 {
			t.Error("a cancelled pull left something behind")
		}
		wantEvents(t, ev)
	})
}
