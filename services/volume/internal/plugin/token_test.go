package plugin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issuer makes tokens that look like the API server's.
type issuer struct {
	now    time.Time
	asked  []string
	broken error
	// brokenFor is for how many requests it is broken; 0 means for all.
	brokenFor int
	opaque    bool
}

func (i *issuer) CreateToken(_ context.Context, namespace, account string,
	r *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	i.asked = append(i.asked, fmt.Sprintf("%s/%s %v %d %s", namespace, account, r.Spec.Audiences,
		*r.Spec.ExpirationSeconds, r.Spec.BoundObjectRef.UID))
	if i.broken != nil && (i.brokenFor == 0 || len(i.asked) <= i.brokenFor) {
		return nil, i.broken
	}
	expires := i.now.Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
	body, _ := json.Marshal(map[string]any{
		"iat": i.now.Unix(), "exp": expires.Add(365 * 24 * time.Hour).Unix(), "aud": r.Spec.Audiences,
		"kubernetes.io": map[string]any{"pod": map[string]any{"uid": r.Spec.BoundObjectRef.UID}, "warnafter": expires.Unix()},
	})
	text := fmt.Sprintf("h%d.%s.s", len(i.asked), base64.RawURLEncoding.EncodeToString(body))
	if i.opaque {
		text = fmt.Sprintf("opaque-%d", len(i.asked))
	}
	out := r.DeepCopy()
	out.Status = authenticationv1.TokenRequestStatus{Token: text, ExpirationTimestamp: metav1.NewTime(expires)}
	return out, nil
}

func projectedToken(t *testing.T, i *issuer, s corev1.ServiceAccountTokenProjection) (Kind, Request) {
	t.Helper()
	s.Path = "token"
	return request(t, All(Objects{Tokens: i, Now: func() time.Time { return i.now }}),
		corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &s}},
		}})
}

func TestTokenLife(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	i := &issuer{now: start}
	kind, r := projectedToken(t, i, corev1.ServiceAccountTokenProjection{
		Audience:          "vault",
		ExpirationSeconds: ptr(int64(1000)),
	})
	r.Pod.Spec.ServiceAccountName = "robot"
	file := filepath.Join(r.Dir, "token")
	read := func() string { data, _ := os.ReadFile(file); return string(data) }

	result := mount(t, kind, r)
	if want := "shop/robot [vault] 1000 u-1"; len(i.asked) != 1 || i.asked[0] != want {
		t.Fatalf("asked %v, want %s", i.asked, want)
	}
	if due := result.RefreshAt.Sub(start); due > 800*time.Second || due < 790*time.Second {
		t.Errorf("due after %s, want 80%% of 1000 s, less up to 10 s", due)
	}
	first := read()

	i.now = start.Add(799 * time.Second)
	if mount(t, kind, r); len(i.asked) != 1 || read() != first {
		t.Errorf("asked again before the token is due: %v", i.asked)
	}

	i.now, i.broken = start.Add(801*time.Second), errors.New("no answer")
	result = mount(t, kind, r)
	if read() != first || !strings.Contains(result.Warning, "no answer") || !result.RefreshAt.After(i.now) {
		t.Errorf("a refused replacement: %+v", result)
	}

	i.broken = nil
	result = mount(t, kind, r)
	if read() == first || result.Warning != "" || len(i.asked) != 3 {
		t.Errorf("the due token was not replaced: %+v, asked %d times", result, len(i.asked))
	}

	i.now, i.broken = i.now.Add(1001*time.Second), errors.New("no answer")
	if _, err := kind.Plugin.Mount(context.Background(), r); err == nil ||
		!strings.Contains(err.Error(), `service account "robot": no answer`) {
		t.Errorf("an expired token that can't be replaced: %v", err)
	}
}

// A clock that is ahead of the API server's makes every token look due.
func TestTokenThatIsDueAtOnce(t *testing.T) {
	i := &issuer{now: time.Unix(1_800_000_000, 0)}
	s := corev1.ServiceAccountTokenProjection{Path: "token"}
	kind, r := request(t, All(Objects{Tokens: i, Now: func() time.Time { return i.now.Add(time.Hour) }}),
		corev1.VolumeSource{
			Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &s}}},
		})
	if wait := mount(t, kind, r).RefreshAt.Sub(i.now.Add(time.Hour)); wait < retryToken {
		t.Errorf("the next one is asked for after %v: that is a loop", wait)
	}
}

// The API server's caches may learn of a pod after the node.
func TestTokenForAPodThatIsNew(t *testing.T) {
	for _, c := range []struct {
		broken error
		asked  int
		fails  bool
	}{
		{apierrors.NewNotFound(corev1.Resource("pod"), "web"), 4, false},
		{
			apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "default", errors.New("no relationship found")), 4,
			false,
		},
		{apierrors.NewNotFound(corev1.Resource("serviceaccounts"), "default"), 1, true},
		{errors.New("no answer"), 1, true},
	} {
		i := &issuer{now: time.Unix(1_800_000_000, 0), broken: c.broken, brokenFor: 3}
		kind, r := projectedToken(t, i, corev1.ServiceAccountTokenProjection{})
		synctest.Test(t, func(t *testing.T) {
			_, err := kind.Plugin.Mount(t.Context(), r)
			if (err != nil) != c.fails || len(i.asked) != c.asked {
				t.Errorf("%v: asked %d times, %v; want %d times", c.broken, len(i.asked), err, c.asked)
			}
		})
	}
	i := &issuer{broken: apierrors.NewNotFound(corev1.Resource("pod"), "web")}
	kind, r := projectedToken(t, i, corev1.ServiceAccountTokenProjection{})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := kind.Plugin.Mount(t.Context(), r)
		if waited := time.Since(start); err == nil || waited > 2*time.Second {
			t.Errorf("a pod that stays unknown: %v after %s", err, waited)
		}
	})
}

func TestTokenIsReplacedAfterADay(t *testing.T) {
	life := issued{from: time.Unix(0, 0), expires: time.Unix(0, 0).Add(30 * 24 * time.Hour)}
	if due := life.due().Sub(life.from); due != 24*time.Hour {
		t.Errorf("due after %s", due)
	}
}

// A token of another pod, for another audience or of another form is not taken from disk.
func TestForeignTokenOnDisk(t *testing.T) {
	i := &issuer{now: time.Unix(1_800_000_000, 0)}
	kind, r := projectedToken(t, i, corev1.ServiceAccountTokenProjection{Audience: "a"})
	mount(t, kind, r)
	r.Pod.UID = "u-2"
	mount(t, kind, r)
	r.Volume.Projected.Sources[0].ServiceAccountToken.Audience = "b"
	mount(t, kind, r)
	i.opaque = true
	r.Pod.UID = "u-3"
	mount(t, kind, r)
	mount(t, kind, r)
	if len(i.asked) != 5 {
		t.Errorf("asked %d times, want 5: %v", len(i.asked), i.asked)
	}
	if got := i.asked[0]; got != "shop/default [a] 3600 u-1" {
		t.Errorf("defaults: %s", got)
	}
}

func TestTokenFileOwner(t *testing.T) {
	i := &issuer{now: time.Unix(1_800_000_000, 0)}
	for _, c := range []struct {
		sc       corev1.PodSecurityContext
		mode     os.FileMode
		uid, gid uint32
	}{
		{corev1.PodSecurityContext{}, 0o644, 0, 0},
		{corev1.PodSecurityContext{RunAsUser: ptr(int64(7))}, 0o600, 7, 0},
		{corev1.PodSecurityContext{FSGroup: ptr(int64(9))}, 0o640, 0, 9},
		{corev1.PodSecurityContext{RunAsUser: ptr(int64(7)), FSGroup: ptr(int64(9))}, 0o640, 7, 9},
	} {
		kind, r := projectedToken(t, i, corev1.ServiceAccountTokenProjection{})
		r.Pod.Spec.SecurityContext = &c.sc
		r.Pod.Spec.Containers = []corev1.Container{{}}
		mount(t, kind, r)
		info, err := os.Stat(filepath.Join(r.Dir, "token"))
		must(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		if info.Mode().Perm() != c.mode || stat.Uid != c.uid || stat.Gid != c.gid {
			t.Errorf("%+v: mode %v, %d:%d; want %v, %d:%d", c.sc, info.Mode(), stat.Uid, stat.Gid, c.mode, c.uid, c.gid)
		}
	}
}

func TestProjectedMergesAndNamesWhatFails(t *testing.T) {
	kinds := All(Objects{
		ConfigMaps: store[corev1.ConfigMap]{"shop/ca": {Data: map[string]string{"ca.crt": "CA", "x": "1"}}},
		Secrets:    store[corev1.Secret]{},
	})
	source := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path:     "x",
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}}},
	}}}
	kind, r := request(t, kinds, source)
	mount(t, kind, r)
	for name, want := range map[string]string{"ca.crt": "CA", "x": "web"} {
		if data, err := os.ReadFile(filepath.Join(r.Dir, name)); string(data) != want {
			t.Errorf("%s: %q, %v; want %q", name, data, err, want)
		}
	}
	if !isMount(t, r.Dir) {
		t.Error("a projected volume is on a disk")
	}
	kind,
		r = request(t, kinds, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "no"}}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}},
		{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}},
		{PodCertificate: &corev1.PodCertificateProjection{}},
		{},
	}}})
	_, err := kind.Plugin.Mount(context.Background(), r)
	for _, want := range []string{
		`configmap "no" not found`, `secret "none" not found`, "clusterTrustBundle: ",
		"podCertificate: ", "none of the known",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add("a.b.c")
	f.Add("h." + base64.RawURLEncoding.EncodeToString([]byte(`{"iat":1,"exp":2,"aud":"x"}`)) + ".s")
	f.Add("h." + base64.RawURLEncoding.EncodeToString([]byte(`{"iat":1,"exp":2,"aud":["x"],"kubernetes.io":{"pod":{}}}`)) +
		".s")
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := parseToken(text); ok && c.Expires <= c.IssuedAt {
			t.Fatalf("a token that ends before it begins: %+v", c)
		}
	})
}
