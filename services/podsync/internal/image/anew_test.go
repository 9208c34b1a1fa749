package image

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A person's request ends the back-off: the pull is tried at once, and a failure counts as the first.
func TestAPullAnewEndsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, _ := newTest(t, Config{})
		rt.fail = func(string, *runtimeapi.AuthConfig) error { return status.Error(codes.NotFound, "no such image") }
		req := request("u", "nginx:1", corev1.PullIfNotPresent)
		for range 3 {
			if _, err := p.Ensure(t.Context(), req); err == nil {
				t.Fatal("the pull has succeeded")
			}
			time.Sleep(5 * time.Minute)
		}
		_, err := p.Ensure(t.Context(), req)
		wantError(t, err, "ErrImagePull", "rpc error: code = NotFound desc = no such image")
		_, err = p.Ensure(t.Context(), req)
		wantError(t, err, "ImagePullBackOff",
			`Back-off pulling image "nginx:1": ErrImagePull: rpc error: code = NotFound desc = no such image`)
		req.Anew = true
		_, err = p.Ensure(t.Context(), req)
		e := wantError(t, err, "ErrImagePull", "rpc error: code = NotFound desc = no such image")
		if got := time.Until(e.RetryAt); got != firstDelay {
			t.Errorf("retry in %v, want %v", got, firstDelay)
		}
		if len(rt.pulls) != 5 {
			t.Errorf("%d pulls, want 5", len(rt.pulls))
		}
	})
}
