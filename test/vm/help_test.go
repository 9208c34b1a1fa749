package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// in runs a command in the machine and returns its output without white space around it.
func in(t testing.TB, command string) string {
	t.Helper()
	out, err := node.Machine.Run(t.Context(), command)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func eventually(t testing.TB, what string, done func(context.Context) error) {
	t.Helper()
	if err := node.Eventually(t.Context(), what, done); err != nil {
		t.Fatal(err)
	}
}

// start starts kubelot and waits until each unit runs.
func start(t testing.TB) {
	t.Helper()
	if _, err := node.Systemctl(t.Context(), "start kubelot.target"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all daemons to run", allRun)
}

// allRun is an error until all daemons run.
func allRun(ctx context.Context) error {
	names, err := node.Units(ctx)
	if err != nil {
		return err
	}
	units, err := node.Show(ctx, names...)
	for _, u := range units {
		if !u.Running() {
			return fmt.Errorf("%s is %s", u.Name, u.ActiveState)
		}
	}
	return err
}

// noneRuns waits until no daemon of kubelot is left: systemctl waits for the end of the target alone.
func noneRuns(t testing.TB) {
	t.Helper()
	eventually(t, "the end of all daemons", func(ctx context.Context) error {
		left, err := node.Machine.Run(ctx, "pgrep -a kubelot || true")
		if err == nil && left != "" {
			err = fmt.Errorf("still running:\n%s", left)
		}
		return err
	})
}

// tasks are the processes of all containers, as the runtime has them.
func tasks(t testing.TB) string {
	t.Helper()
	return in(t, "ctr -n k8s.io tasks list | sort")
}

// inPod runs a shell command in the pod's container by way of the API server and the node's API, and returns its
// output. A request that fails is tried again: the API server's time limits are not made for emulated machines.
func inPod(t testing.TB, ns *kit.Namespace, pod, command string) string {
	t.Helper()
	var out string
	eventually(t, "an exec in pod "+pod, func(context.Context) (err error) {
		out, err = ns.TryKubectl("exec", pod, "--", "sh", "-c", command)
		return err
	})
	return out
}

// fresh is a pod that shows that the crew works.
var fresh = strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: fresh}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: app
    image: busybox:1.36
    command: $FOREVER
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 60}
    volumeMounts: [{name: settings, mountPath: /settings}]
  volumes: [{name: settings, configMap: {name: settings}}]
`, "$FOREVER", forever)

// works shows that the crew does all of its work: a pod is started, answers and goes. It returns that pod.
func works(t testing.TB, ns *kit.Namespace) *corev1.Pod {
	t.Helper()
	ns.Apply(fresh)
	return comesAndGoes(t, ns)
}

// comesAndGoes is works with the pod that is to start already.
func comesAndGoes(t testing.TB, ns *kit.Namespace) *corev1.Pod {
	t.Helper()
	p := ns.Running("fresh")
	if got := inPod(t, ns, "fresh", "cat /settings/colour"); got != "blue" {
		t.Errorf("the new pod's file has %q", got)
	}
	ns.Delete("fresh", -1)
	ns.Gone(p)
	return p
}
