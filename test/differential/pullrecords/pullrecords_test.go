package pullrecords

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images/pullmanager"

	"kubelot.dev/services/podsync/podsynctest"
)

// node is a node's directory under one agent.
type node interface {
	// uses reports whether a pod with the credentials may use the image as it is.
	uses(image, ref string, shown podsynctest.Credentials) bool
	begin(image string)
	came(image, ref string, with podsynctest.Credentials)
	failed(image string)
}

// kubelot is kubelot's code.
type kubelot struct {
	t       *testing.T
	records *podsynctest.Records
}

func newKubelot(t *testing.T, dir string, p podsynctest.Policy) kubelot {
	t.Helper()
	r, err := podsynctest.OpenRecords(podsynctest.RecordsConfig{
		RootDir: dir, Policy: p,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return kubelot{t, r}
}

func (k kubelot) uses(image, ref string, shown podsynctest.Credentials) bool {
	return k.records.Check(image, ref, func() podsynctest.Credentials { return shown })
}

func (k kubelot) begin(image string) {
	if err := k.records.Begin(image); err != nil {
		k.t.Fatal(err)
	}
}

func (k kubelot) came(image, ref string, with podsynctest.Credentials) {
	k.records.Came(image, with, ref)
}
func (k kubelot) failed(image string) { k.records.Failed(image, true) }

// kubelet is Kubernetes' code.
type kubelet struct {
	t       *testing.T
	manager *pullmanager.PullManager
}

// images is a runtime's image store.
type images struct {
	kubecontainer.ImageService
	list []kubecontainer.Image
}

func (i images) ListImages(context.Context) ([]kubecontainer.Image, error) { return i.list, nil }

func newKubelet(t *testing.T, dir string, p podsynctest.Policy, present ...kubecontainer.Image) kubelet {
	t.Helper()
	files, err := pullmanager.NewFSPullRecordsAccessor(klog.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	policy,
		err := pullmanager.NewImagePullCredentialVerificationPolicy(kubeletconfig.ImagePullCredentialsVerificationPolicy(
		p.Kind), p.Allowed)
	if err != nil {
		t.Fatal(err)
	}
	m, err := pullmanager.NewImagePullManager(t.Context(), files, policy, images{list: present}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return kubelet{t, m}
}

func (k kubelet) uses(image, ref string, shown podsynctest.Credentials) bool {
	must, err := k.manager.MustAttemptImagePull(k.t.Context(), image, ref, func() ([]kubeletconfig.ImagePullSecret,
		*kubeletconfig.ImagePullServiceAccount, error,
	) {
		c := credentials(shown)
		if len(c.KubernetesServiceAccounts) == 0 {
			return c.KubernetesSecrets, nil, nil
		}
		return c.KubernetesSecrets, &c.KubernetesServiceAccounts[0], nil
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return !must
}

func (k kubelet) begin(image string) {
	if err := k.manager.RecordPullIntent(klog.Background(), image); err != nil {
		k.t.Fatal(err)
	}
}

func (k kubelet) came(image, ref string, with podsynctest.Credentials) {
	k.manager.RecordImagePulled(k.t.Context(), image, ref, credentials(with))
}

// credentials are the same in the kubelet's type.
func credentials(c podsynctest.Credentials) *kubeletconfig.ImagePullCredentials {
	out := &kubeletconfig.ImagePullCredentials{NodePodsAccessible: c.NodePodsAccessible}
	for _, s := range c.KubernetesSecrets {
		out.KubernetesSecrets = append(out.KubernetesSecrets, kubeletconfig.ImagePullSecret(s))
	}
	for _, a := range c.KubernetesServiceAccounts {
		out.KubernetesServiceAccounts = append(out.KubernetesServiceAccounts, kubeletconfig.ImagePullServiceAccount(a))
	}
	return out
}

func (k kubelet) failed(image string) { k.manager.RecordImagePullFailed(k.t.Context(), image) }

var times = regexp.MustCompile(`"lastUpdatedTime":"[^"]+"`)

// tree are the files below the directory, with their modes and contents; times of updates only as being there.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == dir {
			return err
		}
		text := []byte{}
		if !info.IsDir() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		found[strings.TrimPrefix(path, dir)] = info.Mode().String() + " " + times.ReplaceAllString(string(text), "TIME")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var policies = []podsynctest.Policy{
	{Kind: kubeletv1beta1.NeverVerify},
	{Kind: kubeletv1beta1.NeverVerifyPreloadedImages},
	{Kind: kubeletv1beta1.AlwaysVerify},
	{Kind: kubeletv1beta1.NeverVerifyAllowlistedImages, Allowed: []string{"reg.example/team/*", "busybox"}},
	{Kind: kubeletv1beta1.NeverVerifyAllowlistedImages},
}

// life is what happens on a node, drawn by chance from few images, references and secrets.
type life struct {
	*rand.Rand
	pulling []string
}

const digest = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func (l *life) image() string {
	names := []string{
		"busybox", "busybox:1", "docker.io/library/busybox:1", "reg.example/team/app:1",
		"reg.example/team/app" + digest, "reg.example/team/app:2" + digest, "reg.example/other",
	}
	return names[l.Intn(len(names))]
}

func (l *life) ref() string { return fmt.Sprint("sha256:", l.Intn(4)) }

func (l *life) secret() podsynctest.Secret {
	n := l.Intn(3)
	hash := ""
	if l.Intn(20) > 0 {
		hash = fmt.Sprint("hash", l.Intn(6))
	}
	return podsynctest.Secret{
		UID: fmt.Sprint("uid", n), Namespace: fmt.Sprint("ns", l.Intn(2)),
		Name: fmt.Sprint("name", n), CredentialHash: hash,
	}
}

func (l *life) account() podsynctest.Account {
	return podsynctest.Account{
		UID: fmt.Sprint("uid", l.Intn(2)), Namespace: fmt.Sprint("ns", l.Intn(2)), Name: fmt.Sprint("name", l.Intn(2)),
	}
}

// shown are the credentials of a pod: any number of secrets, and at most one service account.
func (l *life) shown() (c podsynctest.Credentials) {
	for range l.Intn(3) {
		c.KubernetesSecrets = append(c.KubernetesSecrets, l.secret())
	}
	if l.Intn(2) == 0 {
		c.KubernetesServiceAccounts = []podsynctest.Account{l.account()}
	}
	return c
}

// used is what has brought an image.
func (l *life) used() podsynctest.Credentials {
	switch n := l.Intn(12); {
	case n == 0:
		return podsynctest.Credentials{NodePodsAccessible: true}
	case n < 5:
		return podsynctest.Credentials{KubernetesServiceAccounts: []podsynctest.Account{l.account()}}
	}
	return podsynctest.Credentials{KubernetesSecrets: []podsynctest.Secret{l.secret()}}
}

// step is one event, the same on both nodes; it returns what the nodes have answered.
func (l *life) step(nodes ...node) (what string, answers []bool) {
	switch n := l.Intn(10); {
	case n < 5:
		image, ref, shown := l.image(), l.ref(), l.shown()
		for _, n := range nodes {
			answers = append(answers, n.uses(image, ref, shown))
		}
		return fmt.Sprintf("uses %s, %s, %v", image, ref, shown), answers
	case n < 7 || len(l.pulling) == 0:
		image := l.image()
		l.pulling = append(l.pulling, image)
		for _, n := range nodes {
			n.begin(image)
		}
		return "begin " + image, nil
	}
	i := l.Intn(len(l.pulling))
	image := l.pulling[i]
	l.pulling = slices.Delete(l.pulling, i, i+1)
	if l.Intn(4) == 0 {
		for _, n := range nodes {
			n.failed(image)
		}
		return "failed " + image, nil
	}
	ref, used := l.ref(), l.used()
	for _, n := range nodes {
		n.came(image, ref, used)
	}
	return fmt.Sprintf("came %s, %s, %v", image, ref, used), nil
}

// Two nodes, one under each agent, live the same lives; now and then, while nothing is pulled, each gets the other's
// agent.
func TestSameLives(t *testing.T) {
	for seed := range int64(60) {
		policy := policies[int(seed)%len(policies)]
		dirs := []string{t.TempDir(), t.TempDir()}
		l := &life{Rand: rand.New(rand.NewSource(seed))}
		a, b := node(newKubelet(t, dirs[0], policy)), node(newKubelot(t, dirs[1], policy))
		var history []string
		for range 60 {
			what, answers := l.step(a, b)
			history = append(history, what)
			if len(answers) == 2 && answers[0] != answers[1] {
				t.Fatalf("%+v: the kubelet says %v, kubelot %v:\n%s", policy, answers[0], answers[1], strings.Join(history, "\n"))
			}
			if d := cmp.Diff(tree(t, dirs[0]), tree(t, dirs[1])); d != "" {
				t.Fatalf("%+v: the files differ, - kubelet, + kubelot:\n%s\n%s", policy, d, strings.Join(history, "\n"))
			}
			if len(l.pulling) == 0 && l.Intn(3) == 0 {
				slices.Reverse(dirs)
				a, b = newKubelet(t, dirs[0], policy), newKubelot(t, dirs[1], policy)
				history = append(history, "the agents change")
			}
		}
	}
}

// What a killed agent leaves is verified by either agent.
func TestTakenOverAmidAPull(t *testing.T) {
	const image, ref = "reg.example/app:1", "sha256:app"
	shown := podsynctest.Credentials{KubernetesSecrets: []podsynctest.Secret{{
		UID: "u", Namespace: "ns", Name: "s", CredentialHash: "h",
	}}}
	policy := podsynctest.Policy{Kind: kubeletv1beta1.NeverVerifyPreloadedImages}
	present := kubecontainer.Image{ID: ref, RepoTags: []string{image}}
	first := func(dir string) map[string]node {
		return map[string]node{"kubelet": newKubelet(t, dir, policy), "kubelot": newKubelot(t, dir, policy)}
	}
	next := func(dir string) map[string]node {
		return map[string]node{"kubelet": newKubelet(t, dir, policy, present), "kubelot": newKubelot(t, dir, policy)}
	}
	for _, from := range []string{"kubelet", "kubelot"} {
		for _, to := range []string{"kubelet", "kubelot"} {
			dir := t.TempDir()
			first(dir)[from].begin(image)
			n := next(dir)[to]
			if n.uses(image, ref, shown) {
				t.Errorf("from %s to %s: what a killed agent has left may be used", from, to)
			}
			n.begin(image)
			n.came(image, ref, shown)
			if n.uses(image, ref, podsynctest.Credentials{}) || !n.uses(image, ref, shown) {
				t.Errorf("from %s to %s: the next pull wasn't recorded", from, to)
			}
		}
	}
}

// The kubelet's own samples, which have records of both versions of the API and broken ones.
func TestKubeletsSamples(t *testing.T) {
	dir := t.TempDir()
	samples := filepath.Join(kubernetes(t), "pkg/kubelet/images/pullmanager/testdata")
	if err := os.CopyFS(filepath.Join(dir, "image_manager"), os.DirFS(samples)); err != nil {
		t.Fatal(err)
	}
	policy := podsynctest.Policy{Kind: kubeletv1beta1.NeverVerifyPreloadedImages}
	a, b := newKubelot(t, dir, policy), newKubelet(t, dir, policy)
	secrets := []podsynctest.Secret{{
		UID: "testsecretuid", Namespace: "default", Name: "pull-secret",
		CredentialHash: "testsecrethash",
	}}
	accounts := []podsynctest.Account{{UID: "test-sa-uid", Namespace: "default", Name: "test-sa"}}
	used := 0
	for _, ref := range []string{
		"testimageref", "testimage-anonpull", "testimage-anonpull-alpha", "testbrokenrecord", "test-brokenhash",
		"testemptycredmapping",
		"testemptycredmapping-alpha", "testimageref-sa", "policyallowed", "preloaded",
	} {
		for _, image := range []string{
			"docker.io/testing/test:tag", "docker.io/testing/broken", "docker.io/testing/policyexempt",
			"docker.io/testing/test:latest", "docker.io/testing/test-alpha:latest",
			"docker.io/testing/test:something", "repo.repo/test/test:v1", "repo.repo/test/alphatest:v1",
			"secretorg/myimage:customtag", "docker.io/other/other:1",
		} {
			for _, shown := range []podsynctest.Credentials{
				{}, {KubernetesSecrets: secrets}, {KubernetesServiceAccounts: accounts},
			} {
				got, want := a.uses(image, ref, shown), b.uses(image, ref, shown)
				if got != want {
					t.Errorf("%s, %s, with %v: kubelot says %v, the kubelet %v", image, ref, shown, got, want)
				}
				if got {
					used++
				}
			}
		}
	}
	if used == 0 {
		t.Error("nothing may be used")
	}
}

// Records go when the runtime has no such image any more.
func TestRecordsOfGoneImages(t *testing.T) {
	dir := t.TempDir()
	policy := podsynctest.Policy{Kind: kubeletv1beta1.NeverVerifyPreloadedImages}
	k := newKubelet(t, dir, policy)
	for _, ref := range []string{"sha256:here", "sha256:gone"} {
		k.begin("app:1")
		k.came("app:1", ref, podsynctest.Credentials{NodePodsAccessible: true})
	}
	records := filepath.Join(dir, "image_manager", "pulled")
	entries, err := os.ReadDir(records)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Chtimes(filepath.Join(records, e.Name()), longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	newKubelot(t, dir, policy).records.Run(ctx, func(context.Context) ([]*runtimeapi.Image, error) {
		cancel() // one round is enough
		return []*runtimeapi.Image{{Id: "sha256:here"}}, nil
	})
	if entries, err = os.ReadDir(records); err != nil || len(entries) != 1 {
		t.Errorf("records left: %v, %v; want one", entries, err)
	}
}
