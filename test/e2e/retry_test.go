package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// retried asks for another try, and returns when the back-off of the reason would have ended.
func retried(t *testing.T, reason string, args ...string) time.Time {
	t.Helper()
	out, stderr, code := kubelot(t, "", append([]string{"retry", "-o", "json"}, args...)...)
	var report struct {
		Ended []struct {
			Reason string    `json:"reason"`
			Until  time.Time `json:"until"`
		} `json:"ended"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || len(report.Ended) != 1 ||
		report.Ended[0].Reason != reason {
		t.Fatalf("retry %v: exit code %d, %v\n%s%s", args, code, err, out, stderr)
	}
	return report.Ended[0].Until
}

// firstStep is when podsync began its first step for the container after a time; zero if there is none. The history has
// the ends of all steps, and the beginnings of long ones.
func firstStep(t *testing.T, pod, container string, after time.Time) time.Time {
	t.Helper()
	out, stderr, code := kubelot(t, "", "tap", "--pod", pod, "--topic", "podsync.step", "--since", "10m",
		"--follow=false", "-o", "json")
	if code != 0 {
		t.Fatalf("tap: exit code %d\n%s", code, stderr)
	}
	var first time.Time
	for line := range strings.Lines(out) {
		var message struct {
			Data struct {
				Container string        `json:"container"`
				Duration  time.Duration `json:"durationNanoseconds"`
				At        time.Time     `json:"at"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &message); err != nil {
			t.Fatalf("tap: %v\n%s", err, line)
		}
		step := message.Data
		if begun := step.At.Add(-step.Duration); step.Container == container && begun.After(after) &&
			(first.IsZero() || begun.Before(first)) {
			first = begun
		}
	}
	return first
}

// Who has mended what made a container crash doesn't wait for its back-off.
func TestRetryOfACrashLoop(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ns.Apply(pod("crash", `  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'test -e /data/mended || exit 1; `+forever+`']
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, hostPath: {path: `+dir+`}}]
`))
	ns.Wait("crash", "a back-off of 40 s", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount >= 3 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	})
	if err := os.WriteFile(filepath.Join(dir, "mended"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	asked := time.Now()
	until := retried(t, "CrashLoopBackOff", ns.Name+"/crash", "-c", "app")
	ns.Running("crash")
	// How long the start took says nothing: on a busy machine it may be longer than the back-off.
	switch begun := firstStep(t, ns.Name+"/crash", "app", asked); {
	case begun.IsZero():
		t.Error("the history has no step of the container after the retry")
	case !begun.Before(until):
		t.Errorf("it was tried again at %s, and the back-off would have ended at %s", begun, until)
	}
	if _, stderr, code := kubelot(t, "", "retry", ns.Name+"/crash"); code != 2 ||
		!strings.Contains(stderr, "was in no back-off") {
		t.Errorf("of a pod that runs: exit code %d\n%s", code, stderr)
	}
	if _, stderr, code := kubelot(t, "", "retry", ns.Name+"/crash", "-c", "nope"); code != 1 ||
		!strings.Contains(stderr, "no container nope") {
		t.Errorf("of no container: exit code %d\n%s", code, stderr)
	}
}

// Who has pushed the image that was missing doesn't wait for the back-off of its pull.
func TestRetryOfAPull(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(imagePod("pull", bed.Registry.Addr+"/retry/app:1", "IfNotPresent"))
	kit.Follow(t, "a back-off of 40 s", func(ctx context.Context) (kit.Watcher, error) {
		return bed.Client.CoreV1().Events(ns.Name).Watch(ctx, metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Pod,involvedObject.name=pull,reason=Failed",
		})
	}, func(e *corev1.Event) bool { return strings.Contains(e.Message, "Failed to pull image") && e.Count >= 3 })
	ns.Waiting("pull", "app", "ImagePullBackOff")
	push(t, "retry/app")
	p, err := bed.Client.CoreV1().Pods(ns.Name).Get(t.Context(), "pull", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if kit.Ready(p) {
		t.Skip("the machine is so busy that the back-off was over before the image was pushed")
	}
	until, begun := retried(t, "ImagePullBackOff", ns.Name+"/pull"), time.Now()
	// What follows the pull may take long on a busy machine.
	ns.Wait("pull", "out of its back-off", func(p *corev1.Pod) bool {
		waits := kit.Status(p, "app").State.Waiting
		return waits == nil || waits.Reason != "ImagePullBackOff"
	})
	if took, left := time.Since(begun), until.Sub(begun); left > 5*time.Second && took >= left {
		t.Errorf("it took %s to pull again, and the back-off had %s left", took, left)
	}
	ns.Running("pull")
}
