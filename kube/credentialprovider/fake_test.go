package credentialprovider

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// fakeAccounts are the API server's service accounts, by name. Tokens hold for an hour, and are numbered.
type fakeAccounts struct {
	mu       sync.Mutex
	accounts map[string]*corev1.ServiceAccount
	// fail gives the error of a request: of the reading of an account, or of the making of a token.
	fail     func(what string) error
	requests []*authenticationv1.TokenRequest
	reads    int
}

func (f *fakeAccounts) GetServiceAccount(_ context.Context, _, name string) (*corev1.ServiceAccount, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.fail != nil {
		if err := f.fail("account"); err != nil {
			return nil, err
		}
	}
	return f.accounts[name], nil
}

func (f *fakeAccounts) CreateToken(_ context.Context, _, _ string, req *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		if err := f.fail("token"); err != nil {
			return nil, err
		}
	}
	f.requests = append(f.requests, req)
	out := req.DeepCopy()
	out.Status = authenticationv1.TokenRequestStatus{
		Token: fmt.Sprintf("token-%d", len(f.requests)), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour)),
	}
	return out, nil
}

func account(name, uid string, annotations ...string) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(uid), Annotations: map[string]string{},
	}}
	for pair := range slices.Chunk(annotations, 2) {
		a.Annotations[pair[0]] = pair[1]
	}
	return a
}

func podOf(uid, account string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{ServiceAccountName: account},
	}
}

// bed has one provider, whose program counts its runs.
type bed struct {
	*Providers
	t    *testing.T
	api  *fakeAccounts
	dir  string
	logs *strings.Builder
}

// newBed makes a provider with these fields added to its configuration; answer is added to what it answers, and script
// runs before.
func newBed(t *testing.T, fields, script, answer string) *bed {
	t.Helper()
	api := &fakeAccounts{accounts: map[string]*corev1.ServiceAccount{}}
	b := &bed{t: t, dir: t.TempDir(), api: api, logs: &strings.Builder{}}
	write(t, b.dir, "ecr", "#!/bin/sh\ncat >>"+b.dir+"/runs; echo >>"+b.dir+"/runs\n"+script+"\n"+
		answering(`{"kind":"CredentialProviderResponse","apiVersion":"`+v1+`",`+answer+`}`))
	config := write(t, b.dir, "config.yaml", one+fields)
	var err error
	log := slog.New(slog.NewTextHandler(b.logs, nil))
	if b.Providers, err = Open(Options{Config: config, BinDir: b.dir, Accounts: b.api, Log: log}); err != nil {
		t.Fatal(err)
	}
	return b
}

// get asks for the image of a pod. It returns the logins, and problems, as text.
func (b *bed) get(image string, pod *corev1.Pod) string {
	list, errs := b.Credentials(b.t.Context(), image, pod)
	var out []string
	for _, c := range list {
		text := c.Pattern + "=" + c.Username + ":" + c.Password
		if c.Account != nil {
			text += " of " + c.Account.Name + "/" + c.Account.UID
		}
		out = append(out, text)
	}
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return strings.Join(out, ", ")
}

// runs are the requests that the program has got.
func (b *bed) runs() []string {
	text, err := os.ReadFile(b.dir + "/runs")
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	return slices.Collect(strings.FieldsFuncSeq(string(text), func(r rune) bool { return r == '\n' }))
}

func (b *bed) wantRuns(what string, want int) {
	b.t.Helper()
	if got := b.runs(); len(got) != want {
		b.t.Errorf("%s: %d runs, want %d: %v", what, len(got), want, got)
	}
}
