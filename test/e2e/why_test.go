package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// why is what the command says of the namespace's pod.
func why(ctx context.Context, ns *kit.Namespace, name string) (string, error) {
	return bed.Why(ctx, ns.Name+"/"+name)
}

// says waits until the command says all that of the pod.
func says(t *testing.T, ns *kit.Namespace, name string, words ...string) {
	t.Helper()
	ns.In(t).Says(name, words...)
}

// A person learns from one command what keeps a pod from being ready, or from going away.
func TestWhy(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	one := func(name, more string) string {
		return pod(name, `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER`+more+"\n") + "\n---\n"
	}
	ns.Apply(one("fine", "}]") +
		one("nosecret", ", envFrom: [{secretRef: {name: absent}}]}]") +
		one("novolume", ", volumeMounts: [{name: v, mountPath: /v}]}]\n  volumes: [{name: v, configMap: {name: absent}}]") +
		one("noimage",
			", imagePullPolicy: Never}, {name: other, image: \"docker.io/library/absent:1\", imagePullPolicy: Never}]") +
		one("unready", `, readinessProbe: {exec: {command: [sh, -c, "echo not yet; false"]}, periodSeconds: 1, `+long+`}}]`) +
		one("gated", "}]\n  readinessGates: [{conditionType: example.com/lb}]") +
		strings.Replace(one("crash", "}]"), "["+`sh, -c, '`+forever+`']`, `[sh, -c, "exit 3"]`, 1) +
		one("slow", `, lifecycle: {preStop: {exec: {command: [sh, -c, "until [ -e /seen ]; do sleep 0.2; done"]}}}}]`))

	waits := func(reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			for _, s := range p.Status.ContainerStatuses {
				if s.State.Waiting != nil && s.State.Waiting.Reason == reason {
					return true
				}
			}
			return false
		}
	}
	ns.Wait("fine", "Ready", kit.Ready)
	ns.Wait("nosecret", "waiting", waits("CreateContainerConfigError"))
	ns.Event("novolume", "FailedMount", "absent")
	ns.Wait("noimage", "waiting", waits("ErrImageNeverPull"))
	ns.Event("unready", "Unhealthy", "not yet")
	ns.Wait("gated", "containers ready", func(p *corev1.Pod) bool {
		return kit.Condition(p, corev1.ContainersReady) == corev1.ConditionTrue
	})
	ns.Wait("crash", "crashed", waits("CrashLoopBackOff"))
	for name, words := range map[string][]string{
		"fine": {"is ready: 1 container ready", "create sandbox, ", "start container app"},
		"nosecret": {
			"0 of 1 container ready", `container app: CreateContainerConfigError: secret "absent" not found`,
			"-> create what is missing",
		},
		"novolume": {`volume v: FailedMount: `, `configmap "absent" not found`},
		"noimage":  {"1 of 2 containers ready", "container other: ErrImageNeverPull", "imagePullPolicy is Never"},
		"unready":  {"its readiness probe fails for ", "not yet", "kubectl logs -n " + ns.Name + " unready -c app"},
		"gated":    {"1 of 1 container ready", "readiness gate example.com/lb: nobody has set the condition"},
		"crash":    {"CrashLoopBackOff", "ended with exit code 3", "--previous"},
	} {
		says(t, ns, name, words...)
	}

	p := ns.Wait("slow", "Ready", kit.Ready)
	ns.Delete("slow", 120)
	says(t, ns, "slow", "is stopping: its grace period ends in ", "run preStop hook app: under way for ")
	ns.Exec(p, "app", "touch /seen")
	ns.Gone(p)
	says(t, ns, "slow", "is gone", "remove sandboxes")
}
