package pullrecords

import (
	"errors"
	"fmt"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func secret(namespace, name, hash string) Secret {
	return Secret{UID: "uid-of-" + name, Namespace: namespace, Name: name, CredentialHash: hash}
}

func recordOf(repository string, c Credentials) *Record {
	return &Record{ImageRef: "sha256:x", CredentialMapping: map[string]Credentials{repository: c}}
}

func TestDecide(t *testing.T) {
	const app = "reg.example/team/app"
	var many []Secret
	for i := range learnLimit {
		many = append(many, secret("ns", fmt.Sprint("s", i), fmt.Sprint("h", i)))
	}
	bySecret := recordOf(app, Credentials{KubernetesSecrets: []Secret{secret("a", "s", "h")}})
	byAccount := recordOf(app, Credentials{KubernetesServiceAccounts: []Account{{UID: "u", Namespace: "a", Name: "n"}}})
	full := recordOf(app, Credentials{KubernetesSecrets: many})
	always := Policy{Kind: kubeletv1beta1.AlwaysVerify}
	never := Policy{Kind: kubeletv1beta1.NeverVerify}
	listed := func(patterns ...string) Policy {
		return Policy{Kind: kubeletv1beta1.NeverVerifyAllowlistedImages, Allowed: patterns}
	}
	for name, c := range map[string]struct {
		policy  Policy
		known   known
		secrets []Secret
		account *Account
		want    string
		learned bool
	}{
		"preloaded": {want: resultPolicy},
		"preloaded, by name": {
			policy: Policy{Kind: kubeletv1beta1.NeverVerifyPreloadedImages},
			want:   resultPolicy,
		},
		"being pulled": {known: known{pulling: true}, want: resultAuthenticate},
		"being pulled, with a secret": {
			known: known{pulling: true}, secrets: []Secret{secret("a", "s", "h")},
			want: resultAuthenticate,
		},
		"a record without credentials": {known: known{record: &Record{}}, want: resultAuthenticate},
		"a record of another name": {known: known{record: recordOf("reg.example/other",
			Credentials{NodePodsAccessible: true})}, want: resultAuthenticate},
		"a record of the name's beginning": {known: known{record: recordOf("reg.example/team",
			Credentials{NodePodsAccessible: true})}, want: resultAuthenticate},
		"of the node": {
			known: known{record: recordOf(app, Credentials{NodePodsAccessible: true})},
			want:  resultFound,
		},
		"empty credentials": {
			known: known{record: recordOf(app, Credentials{})},
			want:  resultAuthenticate,
		},
		"a service account's": {
			known: known{record: recordOf(app,
				Credentials{KubernetesServiceAccounts: []kubeletv1beta1.ImagePullServiceAccount{{UID: "u"}}})},
			secrets: []Secret{secret("a", "s", "h")}, want: resultAuthenticate,
		},
		"the same service account": {
			known: known{record: byAccount}, account: &Account{UID: "u", Namespace: "a", Name: "n"},
			want: resultFound,
		},
		"a service account made again": {
			known: known{record: byAccount}, account: &Account{UID: "new", Namespace: "a", Name: "n"},
			want: resultAuthenticate,
		},
		"a service account, of a secret's image": {
			known: known{record: bySecret}, account: &Account{UID: "u", Namespace: "a", Name: "n"},
			want: resultAuthenticate,
		},
		"the right service account with a wrong secret": {
			known: known{record: byAccount}, account: &Account{UID: "u", Namespace: "a", Name: "n"},
			secrets: []Secret{secret("b", "t", "i")}, want: resultFound,
		},
		"no secret": {known: known{record: bySecret}, want: resultAuthenticate},
		"the same secret": {
			known:   known{record: bySecret},
			secrets: []Secret{secret("b", "other", "other"), secret("a", "s", "h")}, want: resultFound,
		},
		"another secret": {
			known: known{record: bySecret}, secrets: []Secret{secret("b", "t", "i")},
			want: resultAuthenticate,
		},
		"the same name in another namespace": {
			known: known{record: bySecret}, secrets: []Secret{secret("b", "s", "i")},
			want: resultAuthenticate,
		},
		"the same login in another namespace": {
			known: known{record: bySecret}, secrets: []Secret{secret("b", "s", "h")},
			want: resultFound, learned: true,
		},
		"the same secret, changed": {
			known: known{record: bySecret}, secrets: []Secret{secret("a", "s", "new")},
			want: resultFound, learned: true,
		},
		"a secret made again under its old name": {
			known:   known{record: bySecret},
			secrets: []Secret{{UID: "new", Namespace: "a", Name: "s", CredentialHash: "new"}}, want: resultAuthenticate,
		},
		"no hashes": {
			known: known{record: recordOf(app,
				Credentials{KubernetesSecrets: []Secret{secret("a", "s", "")}})}, secrets: []Secret{secret("b", "t", "")},
			want: resultAuthenticate,
		},
		"a full record, the same login": {
			known: known{record: full}, secrets: []Secret{secret("b", "t", "h7")},
			want: resultFound,
		},
		"a full record, the same secret": {
			known: known{record: full}, secrets: []Secret{secret("ns", "s7", "h7")},
			want: resultFound,
		},
		"a full record, a changed secret": {
			known: known{record: full}, secrets: []Secret{secret("ns", "s7", "new")},
			want: resultAuthenticate,
		},
		"unreadable": {
			known:   known{err: errors.New("no")},
			secrets: []Secret{secret("a", "s", "h")}, want: resultError,
		},
		"unreadable, where nothing is verified": {policy: never, known: known{err: errors.New("no")}, want: resultError},
		"never verified":                        {policy: never, known: known{record: bySecret}, want: resultPolicy},
		"always verified, preloaded":            {policy: always, want: resultAuthenticate},
		"always verified, of the node": {
			policy: always,
			known:  known{record: recordOf(app, Credentials{NodePodsAccessible: true})}, want: resultFound,
		},
		"allowed": {
			policy: listed("x.example/y", app), known: known{record: bySecret},
			want: resultPolicy,
		},
		"allowed by what it begins with": {
			policy: listed("reg.example/team/*"), known: known{pulling: true},
			want: resultPolicy,
		},
		"allowed by the registry": {policy: listed("reg.example/*"), want: resultPolicy},
		"not allowed": {
			policy: listed("reg.example/team", "reg.example/tea/*", "team/app"),
			want:   resultAuthenticate,
		},
		"not allowed, for nothing is": {policy: listed(), want: resultAuthenticate},
		"not allowed, but with the right secret": {
			policy: listed("other"), known: known{record: bySecret},
			secrets: []Secret{secret("a", "s", "h")}, want: resultFound,
		},
		"a policy of tomorrow": {policy: Policy{Kind: "Sometimes"}, want: resultAuthenticate},
	} {
		got := decide(c.policy, app, c.known, func() Credentials {
			shown := Credentials{KubernetesSecrets: c.secrets}
			if c.account != nil {
				shown.KubernetesServiceAccounts = []Account{*c.account}
			}
			return shown
		})
		if got.result != c.want || (got.learned != nil) != c.learned {
			t.Errorf("%s: %s, learned %v; want %s, %v", name, got.result, got.learned, c.want, c.learned)
		}
		if want := c.want == resultPolicy || c.want == resultFound; got.use() != want {
			t.Errorf("%s: may be used: %v", name, got.use())
		}
	}
}

// Credentials of the node are read from its disk, so they are asked for only where they may help.
func TestSecretsAreAskedForWhereTheyMatter(t *testing.T) {
	for name, k := range map[string]known{
		"preloaded": {}, "being pulled": {pulling: true},
		"of the node": {record: recordOf("app", Credentials{NodePodsAccessible: true})},
		"unreadable":  {err: errors.New("no")},
	} {
		decide(Policy{}, "app", k, func() Credentials { t.Errorf("%s: asked", name); return Credentials{} })
	}
}

func TestMerged(t *testing.T) {
	now := time.Now()
	accounts := []kubeletv1beta1.ImagePullServiceAccount{{UID: "u", Namespace: "a", Name: "n"}}
	first := added(nil, "sha256:x", "app", &Credentials{KubernetesSecrets: []Secret{secret("b", "s", "1")}}, now)
	first.CredentialMapping["app"] = Credentials{
		KubernetesSecrets:         first.CredentialMapping["app"].KubernetesSecrets,
		KubernetesServiceAccounts: accounts,
	}
	second := added(first, "sha256:x", "app", &Credentials{KubernetesSecrets: []Secret{secret("b", "s", "2")}}, now)
	third := added(second, "sha256:x", "app", &Credentials{KubernetesSecrets: []Secret{secret("a", "z", "3")}}, now)
	if got := fmt.Sprint(third.CredentialMapping["app"]); got != fmt.Sprint(
		Credentials{
			KubernetesSecrets:         []Secret{secret("a", "z", "3"), secret("b", "s", "2")},
			KubernetesServiceAccounts: accounts,
		}) {
		t.Errorf("got %s", got)
	}
	if got := first.CredentialMapping["app"].KubernetesSecrets[0].CredentialHash; got != "1" {
		t.Errorf("the old record was changed: %s", got)
	}
	fourth := third
	for _, name := range []string{"m", "n", "m"} { // n is there already
		account := Account{UID: "u", Namespace: "a", Name: name}
		fourth = added(fourth, "", "app", &Credentials{KubernetesServiceAccounts: []Account{account}}, now)
	}
	want := fmt.Sprint([]Account{{UID: "u", Namespace: "a", Name: "m"}, accounts[0]})
	if got := fourth.CredentialMapping["app"]; len(got.KubernetesSecrets) != 2 ||
		fmt.Sprint(got.KubernetesServiceAccounts) != want {
		t.Errorf("got %v", got)
	}
	for _, more := range []*Credentials{nil, {KubernetesSecrets: []Secret{secret("a", "s", "h")}}} {
		open := added(added(third, "", "app", &Credentials{NodePodsAccessible: true}, now), "", "app", more,
			now).CredentialMapping["app"]
		if !open.NodePodsAccessible || len(open.KubernetesSecrets)+len(open.KubernetesServiceAccounts) != 0 {
			t.Errorf("what is everybody's has become %v", open)
		}
	}
	if other := added(third, "", "other", nil, now); len(other.CredentialMapping) != 1 ||
		!other.LastUpdatedTime.Time.Equal(now) {
		t.Errorf("got %v", other)
	}
}

func TestNames(t *testing.T) {
	const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for image, want := range map[string][2]string{
		"nginx":                           {"nginx", "docker.io/library/nginx:latest"},
		"nginx:1":                         {"nginx", "docker.io/library/nginx:1"},
		"reg.example:5000/a/b":            {"reg.example:5000/a/b", "reg.example:5000/a/b:latest"},
		"reg.example:5000/a/b:1" + digest: {"reg.example:5000/a/b", "reg.example:5000/a/b" + digest},
		"nginx" + digest:                  {"nginx", "docker.io/library/nginx" + digest},
	} {
		repository, err := repositoryOf(image)
		name, err2 := referenceOf(image)
		if got := [2]string{repository, name}; got != want || err != nil || err2 != nil {
			t.Errorf("%s: %v, %v, %v", image, got, err, err2)
		}
	}
	for _, image := range []string{"", "a:b:c", "UPPER"} {
		if got, err := repositoryOf(image); err == nil {
			t.Errorf("%q: got %q", image, got)
		}
	}
}
