package credentialprovider

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const byAccount = `  tokenAttributes:
    serviceAccountTokenAudience: ecr.example
    cacheType: ServiceAccount
    requireServiceAccount: false
    requiredServiceAccountAnnotationKeys: []
    optionalServiceAccountAnnotationKeys: [optional]
`

const image = "a.ecr.example/x"

func (b *bed) tokensMade(what string, want int) {
	b.t.Helper()
	if got := len(b.api.requests); got != want {
		b.t.Errorf("%s: %d tokens made, want %d", what, got, want)
	}
}

// By token, credentials are for one pod, until it has another token.
func TestCacheByToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, tokens, "", `"cacheKeyType":"Registry",`+auth)
		b.api.accounts["sa"] = account("sa", "uid")
		for _, uid := range []string{"1", "1", "2"} {
			if got := b.get(image, podOf(uid, "sa")); got != "reg.ecr.example=u:p of sa/uid" {
				t.Error(got)
			}
		}
		b.tokensMade("two pods", 2)
		b.wantRuns("two pods", 2)
		r := b.api.requests[0]
		if o := r.Spec.BoundObjectRef; r.UID != "uid" || len(r.Spec.Audiences) != 1 || r.Spec.Audiences[0] != "ecr.example" ||
			o.Kind != "Pod" || o.APIVersion != "v1" || o.Name != "pod-1" || o.UID != "1" || r.Spec.ExpirationSeconds != nil {
			t.Errorf("request %+v", r)
		}
		if got := b.runs()[0]; !strings.Contains(got, `"image":"a.ecr.example/x","serviceAccountToken":"token-1"}`) {
			t.Errorf("request %s", got)
		}
		time.Sleep(47 * time.Minute)
		b.get(image, podOf("1", "sa"))
		b.wantRuns("a token that isn't due", 2)
		time.Sleep(2 * time.Minute)
		b.get(image, podOf("1", "sa"))
		b.tokensMade("a token that is due", 3)
		b.wantRuns("a new token", 3)
		time.Sleep(2 * time.Hour)
		b.get(image, podOf("3", "sa"))
		if n := len(b.list[0].accounts.kept); n != 1 {
			t.Errorf("%d tokens are kept, want that of the last pod", n)
		}
	})
}

// By service account, they are for all its pods, as long as it is the same one with the same annotations.
func TestCacheByAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, byAccount, "", `"cacheKeyType":"Image",`+auth)
		b.api.accounts["sa"], b.api.accounts["other"] = account("sa", "uid", "unknown", "1"), account("other", "uid2")
		get := func(what, name string, want int) {
			t.Helper()
			b.get(image, podOf(what, name))
			b.wantRuns(what, want)
		}
		get("first", "sa", 1)
		get("second pod", "sa", 1)
		get("other account", "other", 2)
		b.api.accounts["sa"] = account("sa", "uid", "unknown", "2")
		get("annotation that isn't passed on", "sa", 2)
		b.api.accounts["sa"] = account("sa", "uid", "optional", "2")
		get("annotation", "sa", 3)
		if got := b.runs()[2]; !strings.Contains(got, `"serviceAccountAnnotations":{"optional":"2"}`) {
			t.Errorf("request %s", got)
		}
		b.api.accounts["sa"] = account("sa", "uid3", "optional", "2")
		get("new account of that name", "sa", 4)
		get("no account", "", 5)
		if got := b.runs()[4]; strings.Contains(got, "serviceAccount") {
			t.Errorf("request %s", got)
		}
		if got := b.get(image, podOf("x", "")); got != "reg.ecr.example=u:p" {
			t.Errorf("without an account: %s", got)
		}
	})
}

// Providers that want an account, or an annotation of it, aren't asked for pods without.
func TestNotAsked(t *testing.T) {
	b := newBed(t, tokens+"    requiredServiceAccountAnnotationKeys: [role]\n", "", `"cacheKeyType":"Image",`+auth)
	b.api.accounts["plain"], b.api.accounts["good"] = account("plain", "1"), account("good", "2", "role", "r")
	for name, want := range map[string]string{"": "", "plain": "", "good": "reg.ecr.example=u:p of good/2"} {
		if got := b.get(image, podOf("1", name)); got != want {
			t.Errorf("account %q: %s", name, got)
		}
	}
	if b.get("other.example/x", podOf("1", "good")); b.api.reads != 2 {
		t.Errorf("%d accounts were read, want 2", b.api.reads)
	}
	b.wantRuns("one pod", 1)
}

// A token is no password, but for a provider that says so; and it's never logged.
func TestTokenAsPassword(t *testing.T) {
	answer := `"cacheKeyType":"Image","auth":{"r":{"username":"u","password":"token-1"}}`
	for fields, want := range map[string]string{
		tokens: "r=u:token-1 of sa/1",
		byAccount: "credential provider ecr: it has returned the service account's token as a password, " +
			"which only a provider with cacheType Token may do",
	} {
		b := newBed(t, fields, "echo I have token-1 >&2", answer)
		b.api.accounts["sa"] = account("sa", "1")
		if got := b.get(image, podOf("1", "sa")); got != want {
			t.Error(got)
		}
		log := b.logs.String()
		if fields == byAccount && (strings.Contains(log, "token-1") || !strings.Contains(log, "I have (token)")) {
			t.Errorf("log: %s", b.logs)
		}
	}
}

func forbidden() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "sa",
		errors.New("no relationship found"))
}

// The API server refuses what is asked for a pod that it doesn't know yet.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, tokens, "", `"cacheKeyType":"Image",`+auth)
		b.api.accounts["sa"] = account("sa", "1")
		failures := map[string]int{"account": 3, "token": 2}
		b.api.fail = func(what string) error {
			if failures[what]--; failures[what] >= 0 {
				return forbidden()
			}
			return nil
		}
		if got := b.get(image, podOf("1", "sa")); got != "reg.ecr.example=u:p of sa/1" {
			t.Error(got)
		}
		b.api.fail = func(string) error { return forbidden() }
		began := time.Now()
		got := b.get(image, podOf("2", "sa"))
		if !strings.Contains(got, "credential provider ecr: read service account ns/sa: ") ||
			time.Since(began) > time.Second {
			t.Errorf("after %s: %s", time.Since(began), got)
		}
		b.api.fail = func(what string) error {
			if what == "token" {
				return forbidden()
			}
			return nil
		}
		got = b.get(image, podOf("3", "sa"))
		if !strings.Contains(got, `get a token of service account ns/sa for audience "ecr.example": `) {
			t.Error(got)
		}
		if !strings.Contains(b.logs.String(), "can't be asked") {
			t.Errorf("log: %s", b.logs)
		}
	})
}

// While the API server is away, a pod's token is good until it ends.
func TestAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, tokens, "", `"cacheKeyType":"Image",`+auth)
		b.api.accounts["sa"] = account("sa", "1")
		const good = "reg.ecr.example=u:p of sa/1"
		if got := b.get(image, podOf("1", "sa")); got != good {
			t.Fatal(got)
		}
		away := fmt.Errorf("connection refused")
		for what, answer := range map[string]func(string) error{
			"away": func(string) error { return away },
			"no tokens": func(what string) error {
				if what == "token" {
					return away
				}
				return nil
			},
		} {
			b.api.fail = answer
			if got := b.get(image, podOf("1", "sa")); got != good {
				t.Errorf("%s: %s", what, got)
			}
			if got := b.get(image, podOf("2", "sa")); !strings.Contains(got, "connection refused") {
				t.Errorf("%s, another pod: %s", what, got)
			}
		}
		time.Sleep(55 * time.Minute) // due, and valid
		if got := b.get(image, podOf("1", "sa")); got != good {
			t.Error(got)
		}
		time.Sleep(6 * time.Minute)
		if got := b.get(image, podOf("1", "sa")); !strings.Contains(got, "connection refused") {
			t.Error(got)
		}
	})
}

func TestStandalone(t *testing.T) {
	b := newBed(t, byAccount, "", `"cacheKeyType":"Image",`+auth)
	b.list[0].accounts.api = nil
	if got := b.get(image, podOf("1", "sa")); !strings.Contains(got, "standalone mode") {
		t.Error(got)
	}
	if got := b.get(image, &corev1.Pod{}); got != "reg.ecr.example=u:p" {
		t.Error(got)
	}
}
