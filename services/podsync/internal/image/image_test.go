package image

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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

// What is measured: each request with what is known of the image, and each pull once for each pod that waited for it.
func TestRequestsAndPullsAreReported(t *testing.T) {
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
			request("u1", "here:1", corev1.PullIfNotPresent), request("u1", "gone:1", corev1.PullNever),
			request("u1", "gone:1", corev1.PullAlways),
		} {
			_, _ = p.Ensure(t.Context(), r)
		}
		want := []string{
			"IfNotPresent true false", "Never false unknown", "u1 pulled since 0s, 42 bytes",
			"Always unknown true",
		}
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
			wantEvents(t, ev, `Normal Pulling Pulling image "nginx:1"`, `Warning Failed Failed to pull image "nginx:1": `+text,
				"Warning Failed Error: ErrImagePull")

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
		"RegistryUnavailable: down": {
			"RegistryUnavailable",
			"image pull failed for nginx:1 because the registry is unavailable: down",
		},
		"SignatureValidationFailed: bad": {
			"SignatureValidationFailed",
			"image pull failed for nginx:1 because the signature validation failed: bad",
		},
		"something RegistryUnavailable x": {"ErrImagePull", "something RegistryUnavailable x"},
	} {
		rt.fail = func(string, *runtimeapi.AuthConfig) error { return status.Error(codes.Unknown, text) }
		_, err := p.Ensure(t.Context(), request(text, "nginx:1", corev1.PullAlways))
		wantError(t, err, want[0], want[1])
	}
}
