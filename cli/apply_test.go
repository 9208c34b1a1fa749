package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/apply"
)

// standalone is a node without an API server: a bus, and a podsync that reads the directory when it is told to.
type standalone struct {
	t       *testing.T
	dir     string
	conn    *bus.Conn
	podsync *bus.Conn
	status  *bus.Conn
	volume  *bus.Conn
	// refuse is what podsync says of manifests; nil for nothing.
	refuse error
}

// onStandalone runs a test on a node, in a bubble.
func onStandalone(t *testing.T, test func(n *standalone)) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "manifests")
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		n := &standalone{
			t: t, dir: dir, conn: shared.Conn("cli"), podsync: shared.Conn("podsync"), status: shared.Conn("status"),
			volume: shared.Conn("volume"),
		}
		ctx, cancel := context.WithCancel(t.Context())
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := topic.ManifestCheck.Serve(ctx, n.podsync, n.check); err != nil {
				t.Error(err)
			}
		})
		defer func() {
			cancel()
			serving.Wait()
			n.conn.Close()
			n.podsync.Close()
			n.status.Close()
			n.volume.Close()
		}()
		synctest.Wait()
		test(n)
	})
}

func (n *standalone) check(_ context.Context, r topic.ManifestRequest) (topic.ManifestReply, error) {
	reply := topic.ManifestReply{Directory: n.dir}
	if r.File == "" {
		return reply, nil
	}
	parts := strings.Split(r.File, ".")
	reply.Pod = topic.Ref{Namespace: parts[1], Name: parts[2] + "-n1", UID: fmt.Sprintf("u-%s-%d", parts[2], len(r.Data))}
	return reply, n.refuse
}

// runs says that a pod is there, with a status.
func (n *standalone) runs(ref topic.Ref, ready corev1.ConditionStatus) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID)},
		Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
	status := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
		Type: corev1.PodReady, Status: ready,
	}}}
	err := errors.Join(
		topic.PodUpdate.Writer(n.podsync).Set(ref.UID, topic.Pod{
			Pod: pod, Source: topic.SourceFile, Lifecycle: topic.Syncing, FirstSeen: time.Now(),
		}),
		topic.MergedStatus.Writer(n.status).Set(ref.UID, topic.Merged{Ref: ref, Status: status}))
	if err != nil {
		n.t.Error(err)
	}
}

// out runs a part of a command and returns what it has written.
func out(t *testing.T, f func(stdout *os.File) error) (string, error) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	runErr := f(file)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text), runErr
}

func docsOf(t *testing.T, names ...string) []apply.Document {
	t.Helper()
	var text string
	for _, name := range names {
		text += "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\n---\n"
	}
	docs, err := apply.Documents("f", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

func (n *standalone) files() []string {
	var names []string
	entries, _ := os.ReadDir(n.dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestApplyWaitsUntilThePodsAreReady(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		time.AfterFunc(10*time.Second, func() {
			for _, name := range n.files() {
				data, err := os.ReadFile(filepath.Join(n.dir, name))
				reply, _ := n.check(n.t.Context(), topic.ManifestRequest{File: name, Data: data})
				if n.runs(reply.Pod, corev1.ConditionTrue); err != nil {
					t.Error(err)
				}
			}
		})
		f := manifestFlags{output: "text", wait: time.Minute}
		text, err := out(n.t, func(stdout *os.File) error {
			return f.apply(n.t.Context(), n.conn, docsOf(n.t, "web", "db"), stdout)
		})
		want := []string{"kubelot.default.db.yaml", "kubelot.default.web.yaml"}
		if err != nil || !slices.Equal(n.files(), want) {
			t.Fatalf("files %q, %v; want %q\n%s", n.files(), err, want, text)
		}
		for _, line := range []string{
			"pod default/web-n1: created (" + n.dir + "/kubelot.default.web.yaml)\n",
			"pod default/db-n1: waits for kubelot-podsync to see it\n", "pod default/db-n1: is ready\n",
		} {
			if !strings.Contains(text, line) {
				t.Errorf("the output lacks %q:\n%s", line, text)
			}
		}

		// Once more: nothing to do. Then everything is removed.
		f.output = "json"
		text, err = out(n.t, func(stdout *os.File) error {
			return f.apply(n.t.Context(), n.conn, docsOf(n.t, "web"), stdout)
		})
		var results []manifestResult
		if jsonErr := json.Unmarshal([]byte(text), &results); err != nil || jsonErr != nil || len(results) != 1 ||
			results[0].Action != apply.Unchanged || !results[0].Done {
			t.Errorf("applied again: %v, %v, %s", err, jsonErr, text)
		}
	})
}

func TestApplySaysWhyAPodIsNotReady(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		n.runs(topic.Ref{Namespace: "default", Name: "web-n1", UID: "other"}, corev1.ConditionTrue)
		synctest.Wait()
		f := manifestFlags{output: "json", wait: 20 * time.Second}
		begun := time.Now()
		text, err := out(n.t, func(stdout *os.File) error {
			return f.apply(n.t.Context(), n.conn, docsOf(n.t, "web"), stdout)
		})
		if exitCode(err) != exitProblems || !strings.Contains(err.Error(), "pod default/web-n1 isn't ready: ") ||
			!strings.Contains(err.Error(), "kubelot why default/web-n1 says more") {
			t.Errorf("error %v", err)
		}
		if took := time.Since(begun); took < f.wait || took > f.wait+whyPatience {
			t.Errorf("took %s", took)
		}
		if !strings.Contains(text, `"done": false`) || !strings.Contains(text, `"problem": "`) {
			t.Errorf("output %s", text)
		}
	})
}

func TestApplyChangesNothingUnlessAllIsFit(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		run := func(f manifestFlags, names ...string) (string, error) {
			return out(n.t, func(stdout *os.File) error {
				return f.apply(n.t.Context(), n.conn, docsOf(n.t, names...), stdout)
			})
		}
		f := manifestFlags{output: "text"}
		n.refuse = bus.WithKind(bus.ErrInvalid, errors.New("spec.x: Invalid value"))
		_, err := run(f, "web")
		if err == nil || err.Error() != "f: spec.x: Invalid value\nnothing was changed" || len(n.files()) > 0 {
			t.Errorf("refused by podsync: %v, files %q", err, n.files())
		}
		n.refuse = nil
		if _, err = run(f, "web", "db", "web"); exitCode(err) != 1 || len(n.files()) > 0 ||
			!strings.Contains(err.Error(), "pod default/web is in f (document 1) already") {
			t.Errorf("one pod twice: %v, files %q", err, n.files())
		}
		f.dryRun, f.wait = true, time.Minute
		if text, err := run(f, "web"); err != nil || len(n.files()) > 0 ||
			!strings.Contains(text, "pod default/web-n1: created (dry run)") {
			t.Errorf("dry run: %v, files %q\n%s", err, n.files(), text)
		}
		f.dryRun, f.wait = false, 0
		if text, err := run(f, "web"); err != nil || len(n.files()) != 1 || strings.Contains(text, "waits") {
			t.Errorf("without a wait: %v, files %q\n%s", err, n.files(), text)
		}
	})
}

func TestDeleteWaitsUntilThePodIsGone(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		f := manifestFlags{output: "text"}
		if _, err := out(n.t, func(stdout *os.File) error {
			return f.apply(n.t.Context(), n.conn, docsOf(n.t, "web", "db"), stdout)
		}); err != nil {
			t.Fatal(err)
		}
		n.runs(topic.Ref{Namespace: "default", Name: "web-n1", UID: "u1"}, corev1.ConditionTrue)
		synctest.Wait()
		remove := func(absent bool, targets ...apply.Target) (string, error) {
			return out(n.t, func(stdout *os.File) error {
				return f.remove(n.t.Context(), n.conn, targets, absent, stdout)
			})
		}
		f.wait = time.Minute
		if _, err := remove(false, apply.Named("web"), apply.Named("nobody")); exitCode(err) != 1 || len(n.files()) != 2 {
			t.Errorf("with one that isn't there: %v, files %q", err, n.files())
		}
		if _, err := remove(false, apply.Named("web")); exitCode(err) != exitProblems || len(n.files()) != 1 ||
			!strings.Contains(err.Error(), "pod default/web-n1 isn't gone: ") {
			t.Errorf("a pod that stays: %v, files %q", err, n.files())
		}
		if err := topic.PodUpdate.Writer(n.podsync).Delete("u1"); err != nil {
			t.Fatal(err)
		}
		text, err := remove(true, apply.Named("web"), apply.Named("default/db"))
		if err != nil || len(n.files()) > 0 || !strings.Contains(text, "pod default/db: deleted") ||
			!strings.Contains(text, "pod default/db: is gone") {
			t.Errorf("%v, files %q\n%s", err, n.files(), text)
		}
	})
}

func TestWithoutPodsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := bustest.New().Conn("cli")
		defer conn.Close()
		_, _, _, err := staticPods(t.Context(), conn)
		if err == nil || !strings.Contains(err.Error(), "kubelot-podsync doesn't answer") ||
			!strings.Contains(err.Error(), "try again") {
			t.Errorf("error %v", err)
		}
	})
}

func TestApplyAndDeleteCommands(t *testing.T) {
	dir, empty := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"secret.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "pod.yaml": "apiVersion: v1\nkind: Pod\n" +
			"metadata: {name: web}\n", "notes.txt": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := "--run-dir=" + empty
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":      {[]string{"apply"}, "name a file, a directory or - with -f"},
		"no file":      {[]string{"apply", "-f", empty + "/x"}, "no such file"},
		"address":      {[]string{"apply", "-f", "https://example.com/pod.yaml"}, "use curl"},
		"empty":        {[]string{"apply", "-f", empty}, "has no *.yaml"},
		"directory":    {[]string{"apply", "-f", dir}, "secret.yaml: a Secret can't be"},
		"no crew":      {[]string{"apply", "-f", dir + "/pod.yaml", run}, "start the crew"},
		"output":       {[]string{"apply", "-f", dir + "/pod.yaml", "-o", "xml"}, "want text or json"},
		"argument":     {[]string{"apply", "web"}, "unknown command"},
		"delete none":  {[]string{"delete"}, "name a pod, or a file with -f"},
		"delete both":  {[]string{"delete", "web", "-f", dir}, "but not both"},
		"delete kind":  {[]string{"delete", "-f", dir}, "a Secret can't be"},
		"delete":       {[]string{"delete", "web", run}, "start the crew"},
		"delete style": {[]string{"delete", "web", "-o", "xml"}, "want text or json"},
		"retry":        {[]string{"retry", "web", run}, "start the crew"},
		"retry style":  {[]string{"retry", "web", "-o", "xml"}, "want text or json"},
		"retry none":   {[]string{"retry"}, "accepts 1 arg"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := call(t, append([]string{"kubelot"}, c.args...)...)
			if code != 1 || !strings.Contains(stderr, c.want) {
				t.Errorf("exit code %d, %s", code, stderr)
			}
		})
	}
}
