package image

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/services/podsync/internal/image/pullrecords"
)

func TestNames(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	for image, want := range map[string]name{
		"nginx":                       {"nginx:latest", "docker.io/library/nginx", "latest"},
		"nginx:1":                     {"nginx:1", "docker.io/library/nginx", "1"},
		"me/app":                      {"me/app:latest", "docker.io/me/app", "latest"},
		"localhost:5000/app":          {"localhost:5000/app:latest", "localhost:5000/app", "latest"},
		"reg.example/a/b:v":           {"reg.example/a/b:v", "reg.example/a/b", "v"},
		"reg.example/a/b" + digest:    {"reg.example/a/b" + digest, "reg.example/a/b", ""},
		"reg.example/a/b:v" + digest:  {"reg.example/a/b:v" + digest, "reg.example/a/b", "v"},
		"docker.io/library/busybox:1": {"docker.io/library/busybox:1", "docker.io/library/busybox", "1"},
	} {
		if got, err := parseName(image); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", image, got, err)
		}
	}
	for _, image := range []string{"", "A", "a:", "a b", ":1", "a@sha256:12", "http://a/b"} {
		if got, err := parseName(image); err == nil {
			t.Errorf("%q: got %+v, want an error", image, got)
		}
	}
}

// users gives who is tried for a repository, in order.
func users(k keyring, repository string) []string {
	var out []string
	for _, a := range k.lookup(repository) {
		out = append(out, a.auth.Username+":"+a.auth.Password)
	}
	return out
}

func TestCredentials(t *testing.T) {
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	k, problems := credentialsOf([]corev1.Secret{
		dockerSecret(`{"auths":{
			"https://index.docker.io/v1/":{"auth":"` + b64("hub:pw:with:colons") + `"},
			"reg.example/v2/":{"auth":"` + strings.TrimRight(b64("a:b"), "=") + `"},
			"https://reg.example/team/":{"username":"team","password":"t"}}}`),
		{
			Type: corev1.SecretTypeDockercfg,
			Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"old.example":{"username":"old"}}`)},
		},
		{Type: corev1.SecretTypeOpaque, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`garbage`)}},
	}, nil)
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
	for repository, want := range map[string][]string{
		"docker.io/library/nginx": {"hub:pw:with:colons"},
		"reg.example/team/app":    {"team:t", "a:b"},
		"reg.example/v2/x":        {"a:b"},
		"old.example/x":           {"old:"},
		"none.example/x":          nil,
	} {
		if got := users(k, repository); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", repository, got, want)
		}
	}
}

// The hashes are Kubernetes 1.36.3's (test/differential/pullrecords compares more).
func TestSourcesOfCredentials(t *testing.T) {
	secret := dockerSecret(
		`{"auths":{"a.example":{"username":"u","password":"<p>","email":"e@x"},"b.example":{"auth":"dTpw"}}}`)
	secret.UID, secret.Namespace, secret.Name = "uid", "ns", "s"
	k, _ := credentialsOf([]corev1.Secret{secret}, nil)
	for repository, hash := range map[string]string{
		"a.example/x": "74f6d5a94d7ff99704ee63309e49bf1e45e4da6a299ef0c4bbc7a3ef07469e67",
		"b.example/x": "edbd57ca9372e64eb1c9070ecf3a049ac553596b0529acf034c7a71d4e618e88",
	} {
		got := k.lookup(repository)
		if want := (pullrecords.Secret{UID: "uid", Namespace: "ns", Name: "s", CredentialHash: hash}); len(got) != 1 ||
			*got[0].secret != want {
			t.Errorf("%s: got %+v, want %+v", repository, *got[0].secret, want)
		}
	}
}

func TestMalformedCredentialsAreNamedButNotShown(t *testing.T) {
	secret := dockerSecret(`{"auths":{"a.example":{"auth":"s3cret!"},"b.example":{"username":"u","password":"p"},"c.example":7,":":{},"d.example":{"auth":"` +
		base64.StdEncoding.EncodeToString([]byte("s3cret")) + `"}}}`)
	secret.Namespace, secret.Name = "ns", "s"
	k, problems := credentialsOf([]corev1.Secret{secret}, nil)
	if got := users(k, "b.example/x"); !slices.Equal(got, []string{"u:p"}) {
		t.Errorf("got %v", got)
	}
	text := strings.Join(problems, "\n")
	for _, want := range []string{"ns/s", "a.example", "c.example", "d.example", "registry :"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't named in: %s", want, text)
		}
	}
	if strings.Contains(text, "s3cret") || strings.Contains(text, "b.example") {
		t.Errorf("shows too much: %s", text)
	}
}

// podman login names Docker Hub docker.io, kubectl create secret docker-registry names it as docker login does.
func TestDockerHubOfPodAndNode(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, []byte(`{"auths":{"docker.io":{"username":"node"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := dockerSecret(`{"auths":{"https://index.docker.io/v1/":{"username":"pod"}}}`)
	k, _ := credentialsOf([]corev1.Secret{secret}, []string{dir})
	if got, want := users(k, "docker.io/me/app"), []string{"pod:", "node:"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNodeCredentials(t *testing.T) {
	root, home := t.TempDir(), t.TempDir()
	write := func(dir, file, text string) {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{root, home}
	if k, problems := credentialsOf(nil, dirs); len(k) > 0 || len(problems) > 0 {
		t.Errorf("got %v, %v", k, problems)
	}
	write(root, ".dockercfg", `{"reg.example":{"username":"cfg"}}`)
	k, _ := credentialsOf(nil, dirs)
	if got := users(k, "reg.example/x"); !slices.Equal(got, []string{"cfg:"}) {
		t.Errorf("got %v", got)
	}
	write(home, "config.json", `{"auths":{"reg.example":{"username":"json"}}}`)
	k, _ = credentialsOf([]corev1.Secret{dockerSecret(`{"auths":{"*.example":{"username":"pod"}}}`)}, dirs)
	if got := users(k, "reg.example/x"); !slices.Equal(got, []string{"pod:", "json:"}) {
		t.Errorf("got %v, want the pod's before the node's", got)
	}
	write(root, "config.json", `{`)
	_, problems := credentialsOf(nil, dirs)
	if len(problems) != 1 || !strings.Contains(problems[0], filepath.Join(root, "config.json")) {
		t.Errorf("got %v", problems)
	}
}

// FuzzCredentials checks that any file is either read or refused, without showing what is in it.
func FuzzCredentials(f *testing.F) {
	for _, seed := range []string{
		`{"auths":{"a":{"auth":"YTpi"}}}`, `{"auths":{"https://a/v1/":{"auth":"YQ=="}}}`, `{`,
		`[]`, `{"auths":{"%":{}}}`,
	} {
		f.Add(seed, "docker.io/library/nginx")
	}
	f.Fuzz(func(t *testing.T, text, repository string) {
		k, _ := credentialsOf([]corev1.Secret{dockerSecret(text)}, nil)
		if got := len(k.lookup(repository)); got > len(k) {
			t.Errorf("%d of %d credentials", got, len(k))
		}
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
		dockerSecret(`{"auths":{"reg.example":{"username":"bad"}}}`),
		dockerSecret(`{"auths":{"reg.example/team":{"username":"worse"}}}`),
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
	wantError(t, err, "ErrImagePull", "[denied for worse, denied for bad]; pull secret ns/broken: not a docker "+
		"config.json")
}

func dockerSecret(text string) corev1.Secret {
	return corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(text)},
	}
}
