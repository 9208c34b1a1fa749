package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/kube/credentialprovider"
)

// fakeProviders answer after a time, and note what they are asked.
type fakeProviders struct {
	answer func(pod *corev1.Pod) []credentialprovider.Credential
	errs   []error
	takes  time.Duration
	asked  []string
}

func (f *fakeProviders) Credentials(ctx context.Context, repository string, pod *corev1.Pod,
) ([]credentialprovider.Credential, []error) {
	f.asked = append(f.asked, repository)
	select {
	case <-time.After(f.takes):
	case <-ctx.Done():
		return nil, []error{context.Cause(ctx)}
	}
	return f.answer(pod), f.errs
}

func logins(list ...credentialprovider.Credential) func(*corev1.Pod) []credentialprovider.Credential {
	return func(*corev1.Pod) []credentialprovider.Credential { return list }
}

// The kubelet's order: secrets, the node's own, providers; among those of the providers longer paths first.
func TestOrderOfCredentials(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"),
		[]byte(`{"auths":{"reg.example/team":{"username":"node"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	fake := &fakeProviders{answer: logins(
		credentialprovider.Credential{Pattern: "reg.example", Username: "first"},
		credentialprovider.Credential{Pattern: "https://reg.example/v2/", Username: "first again"},
		credentialprovider.Credential{Pattern: "reg.example/team/app", Username: "second"},
		credentialprovider.Credential{Pattern: "other.example", Username: "other"},
		credentialprovider.Credential{Pattern: "http://", Username: "nobody"},
	), errs: []error{errors.New("credential provider x: exit status 1")}}
	p, rt, _ := newTest(t, Config{CredentialDirs: []string{dir}, Providers: fake})
	rt.fail = func(_ string, auth *runtimeapi.AuthConfig) error { return errors.New("denied") }
	req := request("pod", private, corev1.PullIfNotPresent)
	req.Secrets = []corev1.Secret{dockerSecret(`{"auths":{"reg.example":{"username":"secret"}}}`)}
	_, err := p.Ensure(t.Context(), req)
	const want = `denied; credentials of a provider for "http://": not the address of a registry; ` +
		"credential provider x: exit status 1"
	wantError(t, err, "ErrImagePull", want)
	var tried []string
	for _, pull := range rt.pulls {
		_, user, _ := strings.Cut(pull, "@")
		tried = append(tried, user)
	}
	if want := []string{"secret", "node", "second", "first", "first again"}; !slices.Equal(tried, want) {
		t.Errorf("tried %q, want %q", tried, want)
	}
	if want := []string{"reg.example/team/app"}; !slices.Equal(fake.asked, want) {
		t.Errorf("asked for %q, want %q", fake.asked, want)
	}
}

// Images that were pulled with the credentials of a service account are for its pods, those of the node for all.
func TestImageOfAnotherPodsServiceAccount(t *testing.T) {
	fake := &fakeProviders{answer: func(pod *corev1.Pod) []credentialprovider.Credential {
		c := credentialprovider.Credential{Pattern: "reg.example", Password: "wrong"}
		if name := pod.Spec.ServiceAccountName; name != "" {
			c.Account = &credentialprovider.Account{UID: "uid of " + name, Namespace: "ns", Name: name}
			if name == "good" {
				c.Password = "right"
			}
		}
		return []credentialprovider.Credential{c}
	}}
	p, rt, _ := guarded(t, Config{Providers: fake})
	as := func(uid, account string) error {
		req := request(uid, private, corev1.PullIfNotPresent)
		req.Pod.Spec.ServiceAccountName = account
		_, err := p.Ensure(t.Context(), req)
		return err
	}
	if err := as("1", "good"); err != nil {
		t.Fatal(err)
	}
	if err := as("2", "good"); err != nil || len(rt.pulls) != 1 {
		t.Errorf("another pod of the account: %v, pulls %v", err, rt.pulls)
	}
	for _, account := range []string{"bad", ""} {
		if err := as("of "+account, account); err == nil {
			t.Errorf("account %q may use the image", account)
		}
	}

	fake.answer = logins(credentialprovider.Credential{Pattern: "reg.example", Password: "right"})
	if err := as("3", ""); err != nil {
		t.Fatal(err)
	}
	fake.asked = nil
	if err := as("4", "bad"); err != nil || len(fake.asked) > 0 {
		t.Errorf("after a pull with credentials that are everybody's: %v, asked %v", err, fake.asked)
	}
}

// A provider that hangs takes no place of another pull, and whoever gives up gets the cause.
func TestProviderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeProviders{answer: logins(), takes: time.Hour}
		p, _, _ := newTest(t, Config{MaxParallel: 1, Providers: fake})
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error)
		go func() {
			_, err := p.Ensure(ctx, request("slow", private, corev1.PullIfNotPresent))
			ended <- err
		}()
		synctest.Wait()
		fake.takes = 0
		if _, err := p.Ensure(t.Context(), request("fast", "reg.example/b:1", corev1.PullIfNotPresent)); err != nil {
			t.Error(err)
		}
		cancel(gone)
		if err := <-ended; !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
}
