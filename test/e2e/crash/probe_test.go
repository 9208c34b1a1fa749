package crash

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// probed is a pod whose startup probes write a line each into a directory of the node. Its readiness was probed once: a
// second run would fail, and is an hour away. All of them have time, for to run a command takes seconds on a busy
// machine.
const probed = `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: starts, hostPath: {path: $DIR}}]
  initContainers:
  - name: side
    image: docker.io/library/busybox:1.36
    restartPolicy: Always
    command: $WAIT
    volumeMounts: $STARTS
    startupProbe: {exec: {command: [sh, -c, "echo startup >> /starts/side"]}, timeoutSeconds: 60, periodSeconds: 1}
  containers:
  - name: app
    image: docker.io/library/busybox:1.36
    command: $WAIT
    volumeMounts: $STARTS
    startupProbe: {exec: {command: [sh, -c, "echo startup >> /starts/app"]}, timeoutSeconds: 60, periodSeconds: 1}
    readinessProbe: {exec: {command: [mkdir, /tmp/ready]}, timeoutSeconds: 60, periodSeconds: 1000000000, failureThreshold: 1}
    livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: often}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: docker.io/library/busybox:1.36
    command: $WAIT
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Pod
metadata: {name: unready}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: docker.io/library/busybox:1.36
    command: $WAIT
    readinessProbe: {exec: {command: [cat, /tmp/well]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
`

// TestProbeVerdictsOutliveDaemons kills each of the daemons that have a part in readiness, all of them, and all of them
// while the API server is away: no Ready condition turns and no startup probe is repeated.
func TestProbeVerdictsOutliveDaemons(t *testing.T) {
	ns := bed.Namespace(t)
	watchFlips(t, ns)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	ns.Apply(strings.NewReplacer(
		"$DIR", dir, "$STARTS", "[{name: starts, mountPath: /starts}]",
		"$WAIT", `[sh, -c, 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done']`,
	).Replace(probed))
	v := verdicts{t: t, ns: ns, dir: dir, was: map[string]*corev1.Pod{
		"probed": ns.Running("probed"),
		"often":  ns.Running("often"),
	}}
	ns.Event("unready", "Unhealthy", "Readiness probe failed")
	v.was["unready"] = ns.Wait("unready", "running", func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodRunning
	})

	concerned := []string{"probe", "podsync", "status", "bus"}
	for _, daemon := range concerned {
		kill(t, bed, daemon)
		v.hold(daemon + " was killed")
		bed.Signal(t, daemon, syscall.SIGTERM)
		v.hold(daemon + " was stopped")
	}
	for _, daemon := range concerned {
		kill(t, bed, daemon)
	}
	v.hold("all were killed")
	killCrew(t)
	relaunch(t)
	v.hold("the whole crew was killed")

	bed.ControlPlane.StopAPIServer()
	for _, daemon := range concerned {
		kill(t, bed, daemon)
	}
	time.Sleep(3 * time.Second) // what goes wrong without the API server shows after its return
	for _, daemon := range concerned[:3] {
		kill(t, bed, daemon)
	}
	kit.Eventually(t, "the crew without an API server", crewRuns)
	time.Sleep(time.Second)
	startAPIServer(t)
	v.hold("all were killed without the API server")

	// The probes go on: this one's verdict turns.
	ns.Exec(v.was["unready"], "app", "touch /tmp/well")
	ns.Running("unready")
}

// verdicts are what must not change.
type verdicts struct {
	t   *testing.T
	ns  *kit.Namespace
	dir string
	was map[string]*corev1.Pod
}

// hold checks, after a moment in which it could change, that all is as it was.
func (v verdicts) hold(after string) {
	v.t.Helper()
	kit.Eventually(v.t, "the crew after "+after, crewRuns)
	time.Sleep(2500 * time.Millisecond)
	for name, was := range v.was {
		is := v.ns.Wait(name, "there", func(*corev1.Pod) bool { return true })
		if a, b := readyCondition(was), readyCondition(is); a.Status != b.Status ||
			!a.LastTransitionTime.Equal(&b.LastTransitionTime) {
			v.t.Errorf("after %s, pod %s: Ready was %v and is %v", after, name, a, b)
		}
		for _, container := range []string{"side", "app"} {
			a, b := kit.Status(was, container), kit.Status(is, container)
			if a == nil {
				continue
			}
			if a.ContainerID != b.ContainerID || a.Ready != b.Ready || *a.Started != *b.Started || b.RestartCount != 0 {
				v.t.Errorf("after %s, pod %s: %s was %+v and is %+v", after, name, container, a, b)
			}
		}
	}
	for _, container := range []string{"side", "app"} {
		if data, err := os.ReadFile(filepath.Join(v.dir, container)); err != nil || string(data) != "startup\n" {
			v.t.Errorf("after %s, the startup probe of %s has written %q (%v); want one run", after, container, data, err)
		}
	}
}
