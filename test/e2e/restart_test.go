package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// A person restarts one container of a pod, and nothing else of it.
func TestRestart(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const two = `  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
  - {name: other, image: "busybox:1.36", command: $FOREVER}
`
	ns.Apply(pod("twice", two) + "\n---\n" + pod("once", "  restartPolicy: Never\n"+two))
	before, once := ns.Running("twice"), ns.Running("once")
	ns.HeedsTERM(before, "app")
	id := func(p *corev1.Pod, container string) string {
		_, id, _ := strings.Cut(kit.Status(p, container).ContainerID, "://")
		return id
	}

	out, stderr, code := kubelot(t, "", "restart", ns.Name+"/twice", "-c", "app", "-o", "json")
	var done struct {
		Container string  `json:"container"`
		Stopped   string  `json:"stopped"`
		ID        string  `json:"id"`
		Seconds   float64 `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(out), &done); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	after := ns.Wait("twice", "restarted by the command", func(p *corev1.Pod) bool {
		return kit.Ready(p) && kit.Status(p, "app").RestartCount > 0
	})
	if app := kit.Status(after, "app"); app.RestartCount != 1 || done.Container != "app" || done.Seconds <= 0 ||
		done.Stopped != id(before, "app") || done.ID != id(after, "app") || done.ID == done.Stopped {
		t.Errorf("it answers %+v; the container was %s, and is %s after %d restarts", done, id(before, "app"),
			id(after, "app"), app.RestartCount)
	}
	if other := kit.Status(after, "other"); other.RestartCount != 0 || id(after, "other") != id(before, "other") {
		t.Errorf("the other container was %s, and is %+v", id(before, "other"), other)
	}

	for _, c := range []struct{ pod, container, says string }{
		{"twice", "", "the pod has app, other"},
		{"twice", "nope", "nope"},
		{"once", "app", "Never"},
		{"absent", "app", "absent"},
	} {
		args := []string{"restart", ns.Name + "/" + c.pod}
		if c.container != "" {
			args = append(args, "-c", c.container)
		}
		if out, stderr, code := kubelot(t, "", args...); code != 1 || out != "" || !strings.Contains(stderr, c.says) {
			t.Errorf("%v: exit code %d, want 1 and %q\n%s%s", args, code, c.says, out, stderr)
		}
	}
	for name, was := range map[string]*corev1.Pod{"twice": after, "once": once} {
		is := ns.Running(name)
		for _, container := range []string{"app", "other"} {
			if id(is, container) != id(was, container) {
				t.Errorf("a restart that was refused has changed container %s of %s", container, name)
			}
		}
	}
}
