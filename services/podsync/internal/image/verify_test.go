package image

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/image/pullrecords"
)

const private = "reg.example/team/app:1"

// asPod is a request of a pod whose pull secret, in a namespace of the same name, has the password.
func asPod(name, password string, policy corev1.PullPolicy) Request {
	req := request(name, private, policy)
	if password != "" {
		s := dockerSecret(`{"auths":{"reg.example":{"username":"u","password":"` + password + `"}}}`)
		s.UID, s.Namespace, s.Name = types.UID("secret of "+name), name, "login"
		req.Secrets = []corev1.Secret{s}
	}
	return req
}

// guarded is a runtime whose registry wants the password.
func guarded(t *testing.T, cfg Config) (*Puller, *fakeRuntime, *events) {
	t.Helper()
	p, rt, ev := newTest(t, cfg)
	rt.fail = func(_ string, auth *runtimeapi.AuthConfig) error {
		if auth.GetPassword() != "right" {
			return status.Error(codes.Unknown, "401 Unauthorized")
		}
		return nil
	}
	return p, rt, ev
}

func TestImageOfAnotherPodsSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rt, ev := guarded(t, Config{})
		if _, err := p.Ensure(t.Context(), asPod("owner", "right", corev1.PullIfNotPresent)); err != nil {
			t.Fatal(err)
		}
		rt.pulls = nil
		ev.take()

		for _, password := range []string{"", "wrong"} {
			_, err := p.Ensure(t.Context(), asPod("never"+password, password, corev1.PullNever))
			message := `Container image "` + private + `" is not present with pull policy of Never`
			wantError(t, err, "ErrImageNeverPull", message)
			wantEvents(t, ev, "Warning ErrImageNeverPull "+message, "Warning Failed Error: ErrImageNeverPull")
			if len(rt.pulls) != 0 {
				t.Errorf("pulls: %v", rt.pulls)
			}
			_, err = p.Ensure(t.Context(), asPod("thief"+password, password, corev1.PullIfNotPresent))
			wantError(t, err, "ErrImagePull", "401 Unauthorized")
			wantEvents(t, ev, `Normal Pulling Pulling image "`+private+`"`, `Warning Failed Failed to pull image "`+private+
				`": 401 Unauthorized`, "Warning Failed Error: ErrImagePull")
			_, err = p.Ensure(t.Context(), asPod("thief"+password, password, corev1.PullIfNotPresent))
			wantError(t, err, "ImagePullBackOff", `Back-off pulling image "`+private+`": ErrImagePull: 401 Unauthorized`)
			ev.take()
			rt.pulls = nil
		}

		for _, policy := range []corev1.PullPolicy{corev1.PullIfNotPresent, corev1.PullNever} {
			for _, name := range []string{"owner", "copy"} {
				if _, err := p.Ensure(t.Context(), asPod(name, "right", policy)); err != nil {
					t.Errorf("%s, %s: %v", name, policy, err)
				}
				wantEvents(t, ev, `Normal Pulled Container image "`+private+
					`" already present on machine and can be accessed by the pod`)
			}
		}
		if len(rt.pulls) != 0 {
			t.Errorf("pulls: %v", rt.pulls)
		}
	})
}

// Another login that the registry takes is tried once, and is good from then on.
func TestAnotherGoodLogin(t *testing.T) {
	p, rt, _ := newTest(t, Config{})
	for _, password := range []string{"one", "two", "two", "one"} {
		if _, err := p.Ensure(t.Context(), asPod(password, password, corev1.PullIfNotPresent)); err != nil {
			t.Fatal(err)
		}
	}
	if len(rt.pulls) != 2 {
		t.Errorf("pulls: %v", rt.pulls)
	}
}

func TestImageOfTheNodesLogin(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"),
		[]byte(`{"auths":{"reg.example":{"username":"node","password":"right"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p, rt, _ := guarded(t, Config{CredentialDirs: []string{dir}})
	// The pod's own login is tried first, and isn't the one that is good.
	for _, req := range []Request{asPod("own", "wrong", corev1.PullIfNotPresent), asPod("none", "", corev1.PullNever)} {
		if _, err := p.Ensure(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{private + "@u", private + "@node"}; !slices.Equal(rt.pulls, want) {
		t.Errorf("pulls: %v, want %v", rt.pulls, want)
	}
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct {
		policy    pullrecords.Policy
		preloaded bool
		may       bool
	}{
		{pullrecords.Policy{Kind: "NeverVerify"}, false, true},
		{pullrecords.Policy{Kind: "NeverVerifyPreloadedImages"}, false, false},
		{pullrecords.Policy{Kind: "NeverVerifyPreloadedImages"}, true, true},
		{pullrecords.Policy{Kind: "NeverVerifyAllowlistedImages", Allowed: []string{"reg.example/team/*"}}, false, true},
		{pullrecords.Policy{Kind: "NeverVerifyAllowlistedImages"}, true, false},
		{pullrecords.Policy{Kind: "AlwaysVerify"}, true, false},
	} {
		records, err := pullrecords.Open(pullrecords.Config{
			RootDir: t.TempDir(), Policy: c.policy,
			Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		p, rt, _ := guarded(t, Config{Records: records})
		if c.preloaded {
			rt.images[private] = &runtimeapi.Image{Id: "sha256:" + private}
		} else if _, err := p.Ensure(t.Context(), asPod("owner", "right", corev1.PullIfNotPresent)); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Ensure(t.Context(), asPod("other", "", corev1.PullNever)); (err == nil) != c.may {
			t.Errorf("%+v, preloaded %v: %v", c.policy, c.preloaded, err)
		}
	}
}

// A pull that nobody waits for any more may have brought the image: then who wants it must have a login.
func TestImageOfAnAbandonedPull(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, rt, _ := guarded(t, Config{})
			image := &runtimeapi.Image{Id: "sha256:" + private}
			if before {
				rt.images[private] = image
			}
			rt.pulling = time.Minute
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				_, err := p.Ensure(ctx, asPod("owner", "right", corev1.PullAlways))
				done <- err
			}()
			time.Sleep(time.Second)
			cancel(errors.New("the pod is gone"))
			<-done
			rt.images[private], rt.pulling = image, 0
			for range 2 { // a failure must not open the door either
				_, err := p.Ensure(t.Context(), asPod("thief", "", corev1.PullIfNotPresent))
				if (err == nil) != before {
					t.Errorf("there before: %v; got %v", before, err)
				}
				time.Sleep(time.Minute)
			}
		})
	}
}

// Without its record a pull isn't begun.
func TestNoIntentNoPull(t *testing.T) {
	dir := t.TempDir()
	records, err := pullrecords.Open(pullrecords.Config{RootDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p, rt, _ := newTest(t, Config{Records: records})
	_, err = p.Ensure(t.Context(), asPod("u", "", corev1.PullIfNotPresent))
	var e *Error
	if !errors.As(err, &e) || e.Reason != ReasonPull || len(rt.pulls) != 0 {
		t.Errorf("got %v, pulls %v", err, rt.pulls)
	}
}
