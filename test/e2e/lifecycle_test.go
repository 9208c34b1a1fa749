package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// diaryVolume is a host directory that containers write their story into; $DIR stands for it.
const diaryVolume = "\n  volumes: [{name: diary, hostPath: {path: $DIR}}]\n"

// Init containers run one after the other, before the others, and once.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("init", `
  initContainers:
  - {name: one, image: "busybox:1.36", command: [sh, -c, "sleep 0.3; echo one >> /d/story"], volumeMounts: [{name: d, mountPath: /d}]}
  - {name: two, image: "busybox:1.36", command: [sh, -c, "echo two >> /d/story; test $(grep -c two /d/story) = 2"], volumeMounts: [{name: d, mountPath: /d}]}
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: d, mountPath: /d}]}
  volumes: [{name: d, emptyDir: {}}]
`) + "\n---\n" + pod("never", `
  restartPolicy: Never
  initContainers: [{name: bad, image: "busybox:1.36", command: [sh, -c, "exit 4"]}]
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]
`))
	p := ns.Running("init")
	ns.Equal(p, "app", "cat /d/story", "one\ntwo\ntwo")
	for name, restarts := range map[string]int32{"one": 0, "two": 1} {
		s := kit.Status(p, name)
		if s.State.Terminated == nil || s.State.Terminated.Reason != "Completed" || !s.Ready || s.RestartCount != restarts {
			t.Errorf("init container %s: %+v; want Completed, ready, %d restarts", name, s, restarts)
		}
	}
	p = ns.Phase("never", corev1.PodFailed)
	if s := kit.Status(p, "app"); s.State.Waiting == nil && s.State.Terminated == nil ||
		kit.Status(p, "bad").State.Terminated.ExitCode != 4 {
		t.Errorf("pod with a failed init container: %+v", p.Status)
	}
	if kit.Condition(p, corev1.PodInitialized) != corev1.ConditionFalse {
		t.Error("Initialized isn't False")
	}
}

// Sidecars start in order before the main containers, live as long as they, and end after them in reverse order.
func TestSidecars(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	member := func(name, extra string) string {
		return `  - {name: ` + name + `, image: "busybox:1.36"` + extra +
			`, volumeMounts: [{name: diary, mountPath: /d}], command: [sh, -c, 'echo +` + name + ` >> /d/story; trap "echo -` +
			name + ` >> /d/story; exit 0" TERM; while :; do sleep 1000 & wait; done']}` + "\n"
	}
	const sidecar = ", restartPolicy: Always"
	ns.Apply(patient(strings.ReplaceAll(pod("team", "  initContainers:\n"+member("first", sidecar)+member("second",
		sidecar)+"  containers:\n"+member("app", "")+diaryVolume), "$DIR", dir)))
	p := ns.Running("team")
	if s := kit.Status(p, "first"); s.State.Running == nil || s.Started == nil || !*s.Started || !s.Ready {
		t.Errorf("sidecar's status: %+v; want running, started, ready", s)
	}
	started := func(name string) time.Time { return kit.Status(p, name).State.Running.StartedAt.Time }
	if started("second").Before(started("first")) || started("app").Before(started("second")) {
		t.Errorf("started first at %s, second at %s, app at %s; want them in this order", started("first"),
			started("second"), started("app"))
	}
	// What they write when they have started races, for a container counts as started before its shell has run a command.
	ns.HeedsTERM(p, "first", "second", "app")
	ns.Delete("team", -1)
	ns.Gone(p)
	story, err := os.ReadFile(dir + "/story")
	if err != nil || len(story) != len("+first\n+second\n+app\n-app\n-second\n-first\n") ||
		!strings.HasSuffix(string(story), "-app\n-second\n-first\n") {
		t.Errorf("order of the stop: %q, %v", story, err)
	}
}

// A job with a sidecar completes: the sidecar is ended when the main container is done.
func TestSidecarOfJob(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("job", `
  restartPolicy: Never
  initContainers: [{name: helper, image: "busybox:1.36", restartPolicy: Always, command: $FOREVER}]
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "sleep 0.5"]}]
`))
	p := ns.Phase("job", corev1.PodSucceeded)
	if s := kit.Status(p, "helper"); s.State.Terminated == nil {
		t.Errorf("sidecar of a completed pod: %+v; want terminated", s)
	}
}

// An ephemeral container joins a running pod and isn't started again.
func TestEphemeralContainer(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	before := ns.Running("web")
	ns.HeedsTERM(before, "app")
	changed := before.DeepCopy()
	changed.ResourceVersion = "" // the node may write the status meanwhile
	changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "busybox:1.36",
			Command: []string{"sh", "-c", "ps; exit 9"},
		},
		TargetContainerName: "app",
	}}
	if _, err := bed.Client.CoreV1().Pods(ns.Name).UpdateEphemeralContainers(t.Context(), "web", changed,
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := ns.Wait("web", "ephemeral container ended", func(p *corev1.Pod) bool {
		s := kit.Status(p, "debug")
		return s != nil && s.State.Terminated != nil
	})
	if s := kit.Status(p, "debug"); s.State.Terminated.ExitCode != 9 || s.RestartCount != 0 {
		t.Errorf("ephemeral container: %+v; want exit code 9", s)
	}
	// It sees its target's processes.
	ns.Logged(p, "debug", "trap")
	if kit.Status(p, "app").ContainerID != kit.Status(before, "app").ContainerID || p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod didn't simply go on: %+v", p.Status)
	}
}

// postStart is waited for; a failing one kills its container, with an Event.
func TestPostStart(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("good", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, lifecycle: {postStart: {exec: {command: [sh, -c, "sleep 0.3; echo hooked > /tmp/hook"]}}}}
`) + "\n---\n" + pod("bad", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, lifecycle: {postStart: {exec: {command: [sh, -c, "echo oh no; exit 5"]}}}}
`))
	ns.Equal(ns.Running("good"), "app", "cat /tmp/hook", "hooked")
	ns.Event("bad", "FailedPostStartHook", "")
	ns.Event("bad", "Killing", "FailedPostStartHook")
	ns.Wait("bad", "restart", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0
	})
}

// preStop runs before SIGTERM, and both have the grace period together.
func TestPreStop(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	ns.Apply(patient(strings.ReplaceAll(pod("stop", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "echo term >> /d/story; exit 0" TERM; while :; do sleep 1000 & wait; done']
    volumeMounts: [{name: diary, mountPath: /d}]
    lifecycle: {preStop: {exec: {command: [sh, -c, "sleep 0.5; echo prestop >> /d/story"]}}}
`+diaryVolume), "$DIR", dir)))
	p := ns.Running("stop")
	ns.HeedsTERM(p, "app")
	ns.Delete("stop", -1)
	ns.Gone(p)
	if err := contains(dir+"/story", "prestop\nterm\n"); err != nil {
		t.Error(err)
	}
}

// A process that ignores SIGTERM is killed when the grace period is over, not before and not much later.
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("deaf", `
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "trap '' TERM; while :; do sleep 1000 & wait; done"]}]
`) + "\n---\n" + pod("forced", `
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "trap '' TERM; while :; do sleep 1000 & wait; done"]}]
`) + "\n---\n" + pod("hurried", `
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, "trap '' TERM; while :; do sleep 1000 & wait; done"]}]
`))
	p, forced, hurried := ns.Running("deaf"), ns.Running("forced"), ns.Running("hurried")
	for _, deaf := range []*corev1.Pod{p, forced, hurried} {
		ns.HeedsTERM(deaf, "app")
	}
	began := time.Now()
	ns.Delete("deaf", 3)
	ns.Delete("forced", 600)
	ns.Delete("hurried", 600)
	ns.Event("hurried", "Killing", "Stopping container app")
	// A second deletion with a shorter grace period counts: nobody waits as long as the first one's.
	ns.Delete("hurried", 1)
	ns.Gone(p)
	if took := time.Since(began); took < 3*time.Second || took > 2*time.Minute {
		t.Errorf("gone after %v; want a little more than the grace period of 3 s", took)
	}
	ns.Gone(hurried)
	ns.Delete("forced", 0)
	kit.Eventually(t, "the node to be clean", func() error { return bed.Leftovers(t.Context(), p, forced) })
}

// A pod deleted while it starts goes at once, whatever it waits for.
func TestDeleteWhileStarting(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("stuck", `
  containers: [{name: app, image: "busybox:1.36", command: $FOREVER, volumeMounts: [{name: c, mountPath: /c}]}]
  volumes: [{name: c, configMap: {name: never}}]
`) + "\n---\n" + pod("fresh", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	fresh := ns.Wait("fresh", "seen", func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	ns.Delete("fresh", -1)
	ns.Event("stuck", "FailedMount", "")
	stuck := ns.Phase("stuck", corev1.PodPending)
	ns.Delete("stuck", -1)
	ns.Gone(stuck)
	ns.Gone(fresh)
	kit.Eventually(t, "the node to be clean", func() error { return bed.Leftovers(t.Context(), stuck, fresh) })
}

// Hooks by HTTP, and by sleeping.
func TestHookKinds(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	dir := t.TempDir()
	ns.Apply(patient(strings.ReplaceAll(pod("http", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'mkdir -p /www/cgi-bin && printf "#!/bin/sh\necho called >> /d/story\nprintf \"Content-Type: text/plain\\n\\nok\"\n" > /www/cgi-bin/hook && chmod +x /www/cgi-bin/hook && touch /www/up && trap "exit 0" TERM; httpd -f -p 8080 -h /www & wait']
    volumeMounts: [{name: diary, mountPath: /d}]
    lifecycle: {preStop: {httpGet: {path: /cgi-bin/hook, port: 8080}}}
`+diaryVolume)+"\n---\n"+pod("sleepy", `
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER, lifecycle: {postStart: {sleep: {seconds: 1}}, preStop: {sleep: {seconds: 2}}}}
`), "$DIR", dir)))
	http, sleepy := ns.Running("http"), ns.Running("sleepy")
	serves(t, ns, http, "http://127.0.0.1:8080/up")
	ns.HeedsTERM(http, "app")
	ns.HeedsTERM(sleepy, "app")
	began := time.Now()
	ns.Delete("http", -1)
	ns.Delete("sleepy", -1)
	ns.Gone(sleepy)
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("gone after %v; want at least the hook's 2 s", took)
	}
	ns.Gone(http)
	if err := contains(dir+"/story", "called\n"); err != nil {
		t.Errorf("the hook wasn't called over HTTP: %v", err)
	}
}

// A container that ends well is started again where the policy is Always, and a policy of its own wins.
func TestRestartPolicies(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("always", `
  containers: [{name: app, image: "busybox:1.36", command: ["true"]}]
`) + "\n---\n" + pod("own", `
  restartPolicy: Never
  containers:
  - {name: app, image: "busybox:1.36", command: $FOREVER}
  - {name: again, image: "busybox:1.36", restartPolicy: OnFailure, command: [sh, -c, "exit 1"]}
  - {name: once, image: "busybox:1.36", command: [sh, -c, "exit 1"]}
`))
	ns.Wait("always", "two restarts", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount >= 2
	})
	p := ns.Wait("own", "one container ended, or started again", func(p *corev1.Pod) bool {
		s := kit.Status(p, "once")
		return s != nil && (s.State.Terminated != nil || s.RestartCount > 0)
	})
	restarts := kit.Restarts(p, "again")
	p = ns.Wait("own", "a restart after that", func(p *corev1.Pod) bool { return kit.Restarts(p, "again") > restarts })
	if s := kit.Status(p, "once"); s.RestartCount != 0 || s.State.Terminated == nil {
		t.Errorf("container without a policy of its own: %+v; want it ended once", s)
	}
}

// A deadline that is set while the pod runs counts from the pod's start.
func TestDeadlineSetLater(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("late", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("late")
	ns.Kubectl("patch", "pod", "late", "--patch", `{"spec":{"activeDeadlineSeconds":1}}`)
	if p := ns.Phase("late", corev1.PodFailed); p.Status.Reason != "DeadlineExceeded" {
		t.Errorf("reason %q; want DeadlineExceeded", p.Status.Reason)
	}
}
