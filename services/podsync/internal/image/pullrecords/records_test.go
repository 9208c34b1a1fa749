package pullrecords

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/atomicfile"
)

const (
	app = "reg.example/app:1"
	ref = "sha256:app"
)

func open(t *testing.T, dir string) *Records {
	t.Helper()
	r, err := Open(Config{RootDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func begin(t *testing.T, r *Records, image string) {
	t.Helper()
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
}

// of are the credentials of a secret.
func of(s Secret) Credentials { return Credentials{KubernetesSecrets: []Secret{s}} }

// uses asks for a pod that has the secrets.
func uses(r *Records, image, ref string, secrets ...Secret) bool {
	return r.Check(image, ref, func() Credentials { return Credentials{KubernetesSecrets: secrets} })
}

func wantUse(t *testing.T, what string, got, want bool) {
	t.Helper()
	if got != want {
		t.Errorf("%s: may be used: %v, want %v", what, got, want)
	}
}

func listed(id string, names ...string) []*runtimeapi.Image {
	return []*runtimeapi.Image{{Id: id, RepoTags: names}}
}

func wantFiles(t *testing.T, r *Records, intents, records int) {
	t.Helper()
	if i, n := r.store.count(); i != intents || n != records {
		t.Errorf("%d intents and %d records, want %d and %d", i, n, intents, records)
	}
}

func TestWhoMayUseWhatASecretHasBrought(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	mine, copied, changed := secret("a", "s", "h"), secret("b", "s", "h"), secret("a", "s", "new")
	wantUse(t, "preloaded", uses(r, app, ref), true)
	begin(t, r, app)
	wantUse(t, "being pulled", uses(r, app, ref, mine), false)
	r.Came(app, of(mine), ref, ref)
	wantFiles(t, r, 0, 1)
	wantUse(t, "without a secret", uses(r, app, ref), false)
	wantUse(t, "with another", uses(r, app, ref, secret("b", "t", "i")), false)
	wantUse(t, "by its digest", uses(r, "reg.example/app@sha256:"+strings.Repeat("a", 64), ref, mine), true)
	wantUse(t, "by another name", uses(r, "other.example/app:1", ref, mine), false)
	wantUse(t, "with a copy", uses(r, app, ref, copied), true)
	wantUse(t, "with the changed secret", uses(r, app, ref, changed), true)

	r = open(t, dir) // by the next process
	wantUse(t, "with a login that was learned", uses(r, app, ref, secret("c", "u", "new")), true)
	wantUse(t, "with a secret that was learned, and changed", uses(r, app, ref, secret("b", "s", "newer")), true)
	begin(t, r, "other.example/app:1")
	r.Came("other.example/app:1", Credentials{NodePodsAccessible: true}, ref)
	wantUse(t, "by the name that is everybody's", uses(r, "other.example/app:1", ref), true)
	wantUse(t, "without a secret by the other name", uses(r, app, ref), false)
	begin(t, r, app)
	r.Came(app, Credentials{NodePodsAccessible: true}, ref)
	wantUse(t, "once it's everybody's", uses(r, app, ref), true)
	wantFiles(t, r, 0, 1)
}

// Some runtimes answer a pull with another reference than that by which the image is found.
func TestBothReferencesAreRecorded(t *testing.T) {
	r := open(t, t.TempDir())
	mine := secret("a", "s", "h")
	begin(t, r, app)
	r.Came(app, of(mine), "reg.example/app@sha256:1", ref)
	for _, ref := range []string{"reg.example/app@sha256:1", ref} {
		wantUse(t, ref, uses(r, app, ref), false)
		wantUse(t, ref+" with the secret", uses(r, app, ref, mine), true)
	}
	r.tidy([]*runtimeapi.Image{{Id: ref, RepoDigests: []string{"reg.example/app@sha256:1"}}}, time.Now().Add(time.Hour))
	wantFiles(t, r, 0, 2)
}

func TestIntents(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	mine := secret("a", "s", "h")

	// A failure leaves nothing, unless another pull is under way.
	begin(t, r, app)
	begin(t, r, app)
	r.Failed(app, true)
	wantUse(t, "while another pull is under way", uses(r, app, ref, mine), false)
	r.Failed(app, true)
	wantFiles(t, r, 0, 0)
	wantUse(t, "after failures", uses(r, app, ref), true)

	// What may have come after all is nobody's, also after a failure of somebody else's, until a pull succeeds.
	begin(t, r, app)
	r.Failed(app, false)
	begin(t, r, app)
	r.Failed(app, true)
	wantUse(t, "after a pull that was broken off", uses(r, app, ref), false)
	begin(t, r, app)
	r.Came(app, of(mine), ref)
	wantFiles(t, r, 0, 1)

	// The same after a kill.
	begin(t, r, "killed:1")
	r = open(t, dir)
	wantUse(t, "after a kill", uses(r, "killed:1", "sha256:k"), false)
	begin(t, r, "killed:1")
	r.Failed("killed:1", true)
	wantUse(t, "after a kill and a failure", uses(r, "killed:1", "sha256:k"), false)

	// An end without a beginning is none.
	r.Failed("never:1", true)

	// A pull of which the runtime returned no reference can't be recorded.
	begin(t, r, "nameless:1")
	r.Came("nameless:1", of(mine), "", "")
	wantUse(t, "what has no reference", uses(r, "nameless:1", "sha256:n", mine), false)
}

func TestTidy(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	for _, image := range []string{"busybox", "reg.example/gone:1", "reg.example/running:1"} {
		begin(t, r, image)
	}
	r = open(t, dir)
	begin(t, r, "reg.example/running:1")
	mine := secret("a", "s", "h")
	begin(t, r, app)
	r.Came(app, of(mine), ref)
	begin(t, r, "reg.example/old:1")
	r.Came("reg.example/old:1", of(mine), "sha256:old")
	for _, name := range []string{filePrefix + "bad", filePrefix + "half" + atomicfile.Suffix, "mine"} {
		put(t, filepath.Join(r.store.pulled, name), "{")
	}

	images := append(listed(ref, app), listed("sha256:b", "docker.io/library/busybox:latest",
		"docker.io/library/busybox:2")...)
	images = append(images, listed("sha256:r", "reg.example/running:1")...)
	r.tidy(images, time.Now())
	// busybox has come and is recorded; what has changed just now stays, whatever it is.
	wantFiles(t, r, 2, 4)
	wantUse(t, "what came after all", uses(r, "busybox", "sha256:b", mine), false)
	wantUse(t, "what is being pulled", uses(r, "reg.example/running:1", "sha256:r", mine), false)

	r.tidy(images, time.Now().Add(time.Hour))
	wantFiles(t, r, 2, 2)
	wantUse(t, "what is there still", uses(r, app, ref), false)
	if left, err := os.ReadDir(r.store.pulled); err != nil || len(left) != 3 {
		t.Errorf("left: %v, %v; want two records and the file that isn't one", left, err)
	}
	r.tidy(nil, time.Now().Add(time.Hour))
	wantFiles(t, r, 2, 0)
	if leaked, err := os.ReadFile(filepath.Join(r.store.pulled, "mine")); err != nil || string(leaked) != "{" {
		t.Errorf("another's file: %q, %v", leaked, err)
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Whatever is in a file, or in its place, lets nobody in and is replaced by the next pull where that is possible.
func TestBadFiles(t *testing.T) {
	mine := secret("a", "s", "h")
	good := `{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1","lastUpdatedTime":"2026-01-01T00:00:00Z","imageRef":"` + ref +
		`","credentialMapping":{"reg.example/app":{"nodePodsAccessible":true}}}`
	for name, text := range map[string]string{
		"empty": "", "half": good[:len(good)/2], "no JSON": "\x00\x01", "a list": "[]", "null": "null", "nothing": "{}",
		"of another image":    strings.Replace(good, ref, "sha256:other", 1),
		"of another kind":     strings.Replace(good, recordKind, intentKind, 1),
		"of another version":  strings.Replace(good, "v1beta1", "v2", 1),
		"of another group":    strings.Replace(good, "kubelet.config.k8s.io", "example.com", 1),
		"an unknown field":    strings.Replace(good, `"imageRef"`, `"onlyOnMondays":true,"imageRef"`, 1),
		"a field in capitals": strings.Replace(good, `nodePodsAccessible`, `NodePodsAccessible`, 1),
		"a field twice":       strings.Replace(good, `"imageRef"`, `"imageRef":"`+ref+`","imageRef"`, 1),
		"a wrong type":        strings.Replace(good, "true", `"yes"`, 1),
		"two records":         good + good,
	} {
		r := open(t, t.TempDir())
		put(t, filepath.Join(r.store.pulled, fileOf(ref)), text)
		wantUse(t, name, uses(r, app, ref, mine), false)
		begin(t, r, app)
		r.Came(app, of(mine), ref)
		wantUse(t, name+", pulled again", uses(r, app, ref, mine), true)
		wantUse(t, name+", pulled again, without the secret", uses(r, app, ref), false)

		put(t, filepath.Join(r.store.pulling, fileOf("b:1")), text)
		wantUse(t, name+" as an intent", uses(r, "b:1", "sha256:b"), false)
		r.tidy(listed("sha256:b", "docker.io/library/b:1"), time.Now())
		wantUse(t, name+" as an intent, tidied", uses(r, "b:1", "sha256:b"), false)
	}
	r := open(t, t.TempDir())
	put(t, filepath.Join(r.store.pulled, fileOf(ref)), good)
	wantUse(t, "good", uses(r, app, ref), true)
	put(t, filepath.Join(r.store.pulled, fileOf(ref)), strings.Replace(good, "v1beta1", "v1alpha1", 1))
	wantUse(t, "good, of the older version", uses(r, app, ref), true)
}

// A directory in a file's place can neither be read nor replaced.
func TestDirectoriesInTheWay(t *testing.T) {
	r := open(t, t.TempDir())
	mine := secret("a", "s", "h")
	if err := errors.Join(os.MkdirAll(filepath.Join(r.store.pulled, fileOf(ref), "x"), 0o700),
		os.MkdirAll(filepath.Join(r.store.pulling, fileOf("b:1"), "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	wantUse(t, "a record", uses(r, app, ref, mine), false)
	begin(t, r, app)
	r.Came(app, of(mine), ref)
	wantUse(t, "a record that can't be written", uses(r, app, ref, mine), false)
	if _, err := os.Stat(filepath.Join(r.store.pulling, fileOf(app))); err != nil {
		t.Errorf("the intent of a pull that can't be recorded: %v", err)
	}
	if err := r.Begin("b:1"); err == nil || !strings.Contains(err.Error(), `record the intent to pull image "b:1"`) {
		t.Errorf("an intent that can't be written: %v", err)
	}
	wantUse(t, "an intent", uses(r, "b:1", "sha256:b"), false)
	if left, err := filepath.Glob(filepath.Join(r.cfg.RootDir, "image_manager", "*", "*"+atomicfile.Suffix)); err != nil ||
		len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNoRoom(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	put(t, file, "")
	if _, err := Open(Config{RootDir: file}); err == nil ||
		!strings.Contains(err.Error(), "create the directories of image pull records") {
		t.Errorf("got %v", err)
	}
	r := open(t, t.TempDir())
	if err := os.RemoveAll(r.cfg.RootDir); err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(app); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	r.tidy(nil, time.Now())
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		begin(t, open(t, dir), "busybox:1")
		r := open(t, dir)
		ctx, cancel := context.WithCancel(t.Context())
		asked := 0
		var wait sync.WaitGroup
		wait.Go(func() {
			r.Run(ctx, func(context.Context) ([]*runtimeapi.Image, error) {
				if asked++; asked == 1 {
					return nil, errors.New("away")
				}
				return listed("sha256:b", "docker.io/library/busybox:1"), nil
			})
		})
		synctest.Wait()
		wantFiles(t, r, 1, 0)
		time.Sleep(tidyEvery)
		synctest.Wait()
		wantFiles(t, r, 0, 1)
		cancel()
		wait.Wait()
	})
}

func TestWhatIsMeasured(t *testing.T) {
	var told []string
	r, err := Open(Config{
		RootDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Checked: func(result string) { told = append(told, result) },
		Kept:    func(intents, records int) { told = append(told, fmt.Sprint(intents, records)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	uses(r, app, ref)
	begin(t, r, app)
	r.Came(app, Credentials{NodePodsAccessible: true}, ref)
	uses(r, app, ref)
	if got := strings.Join(told, " "); got != "0 0 credentialPolicyAllowed 1 0 1 1 0 1 credentialRecordFound" {
		t.Errorf("told %s", got)
	}
}
