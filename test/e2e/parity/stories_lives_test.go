package parity

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// deaf is a command that doesn't end when told to.
const deaf = `command: [sh, -c, 'trap "" TERM; while :; do sleep 1000 & wait; done']`

func killPause(t *testing.T, s *stage, p *corev1.Pod) { s.bed.KillSandboxes(t, p) }

func ended(p *corev1.Pod) bool { return phase(corev1.PodFailed)(p) || phase(corev1.PodSucceeded)(p) }

// debug adds an ephemeral container of the image.
func debug(image string) func(*testing.T, *stage, *corev1.Pod) {
	return func(t *testing.T, s *stage, p *corev1.Pod) {
		changed := p.DeepCopy()
		changed.ResourceVersion = "" // whatever the agent has said of the pod meanwhile
		changed.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: "debug", Image: s.filled(image),
				Command: []string{"sh", "-c", "exit 9"},
			},
			TargetContainerName: "app",
		}}
		if _, err := s.bed.Client.CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(t.Context(), p.Name, changed,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// deadline gives a pod that runs so much time from now.
func deadline(after time.Duration) func(*testing.T, *stage, *corev1.Pod) {
	return func(t *testing.T, s *stage, p *corev1.Pod) {
		active := time.Since(p.Status.StartTime.Time) + after
		s.patch(t, p, fmt.Sprintf(`{"spec": {"activeDeadlineSeconds": %d}}`, int(active.Seconds())))
	}
}

// short is for what wouldn't end when told to.
const short = "  terminationGracePeriodSeconds: 2\n"

const once = `[sh, -c, 'if [ -e /d/x ]; then exit 0; fi; touch /d/x; exit 42'], volumeMounts: [{name: d, mountPath: /d}]`

var lifeStories = []story{
	{
		name: "rules", spec: "  restartPolicy: Never\n" +
			app(
				`restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}], command: `+
					once) + "  volumes: [{name: d, emptyDir: {}}]\n",
		settled: ended,
	},
	{
		name: "norule", spec: "  restartPolicy: Always\n" +
			app(
				`restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: NotIn, values: [42]}}], command: `+once) + "  volumes: [{name: d, emptyDir: {}}]\n",
		settled: ended,
	},
	{
		name: "initrules", spec: "  restartPolicy: Never\n  initContainers: [{name: one, image: \"busybox:1.36\", " +
			"restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}], command: " +
			once + "}]\n" + app(forever) + "  volumes: [{name: d, emptyDir: {}}]\n",
		settled: kit.Ready,
	},
	{name: "ownpolicy", spec: "  restartPolicy: Never\n  containers: [{name: app, image: \"busybox:1.36\", " +
		"restartPolicy: OnFailure, command: " + once + "}, {name: other, image: \"busybox:1.36\", command: [sh, -c, \"exit " +
		"1\"]}]\n  volumes: [{name: d, emptyDir: {}}]\n", settled: ended},
	{name: "nograce", spec: "  terminationGracePeriodSeconds: 0\n" + app(deaf), settled: kit.Ready, end: true},
	{name: "deaf", spec: "  terminationGracePeriodSeconds: 1\n" + app(deaf), settled: kit.Ready, end: true},
	{
		name: "prestophangs", spec: short + app(forever+`, lifecycle: {preStop: {exec: {command: [sleep, "1000"]}}}`),
		settled: kit.Ready, end: true,
	},
	{
		name: "prestopslept", spec: app(forever + `, lifecycle: {preStop: {sleep: {seconds: 1}}}`),
		settled: kit.Ready, end: true,
	},
	{
		name: "prestophttp", spec: app(forever + `, lifecycle: {preStop: {httpGet: {port: 81, path: /stop}}}`),
		settled: kit.Ready, end: true,
	},
	{
		name: "prestopabsent", spec: app(forever + `, lifecycle: {preStop: {exec: {command: [/no/such]}}}`),
		settled: kit.Ready, end: true,
	},
	{name: "poststarted", spec: app(forever + `, lifecycle: {postStart: {sleep: {seconds: 1}}}`), settled: kit.Ready},
	{
		name: "poststarthttp", spec: short + "  restartPolicy: Never\n" +
			app(deaf+`, lifecycle: {postStart: {httpGet: {port: 81, path: /start}}}`), settled: ended,
		event: "FailedPostStartHook",
	},
	{name: "lastwords", spec: "  restartPolicy: Never\n" +
		app(
			`terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "for i in $(seq 100); do echo line $i of the words; done; exit 2"]`), settled: ended},
	{name: "nolastwords", spec: "  restartPolicy: Never\n" +
		app(`terminationMessagePolicy: FallbackToLogsOnError, command: [sh, -c, "echo fine"]`), settled: ended},
	{name: "signalled", spec: "  restartPolicy: Never\n" + app(`command: [sh, -c, "kill -SEGV $$"]`), settled: ended},
	{name: "deadlinelater", spec: app(forever), settled: kit.Ready, then: func(t *testing.T, s *stage, p *corev1.Pod) {
		s.patch(t, p, `{"spec": {"activeDeadlineSeconds": 1}}`)
	}, again: ended, event: "DeadlineExceeded"},
	{
		name: "pausekilled", spec: "  initContainers: [{name: one, image: \"busybox:1.36\", command: [\"true\"]}]\n" +
			app(forever), settled: kit.Ready, then: killPause, event: "SandboxChanged",
		again: func(p *corev1.Pod) bool { return restarted(p) && kit.Status(p, "one").RestartCount >= 1 },
	},
	{
		name: "pausekillednever", spec: "  restartPolicy: Never\n" + app(forever), settled: kit.Ready,
		then: killPause, again: ended,
	},
	{name: "killed", spec: short + app(deaf), settled: kit.Ready, then: func(t *testing.T, s *stage, p *corev1.Pod) {
		s.bed.KillContainer(t, p, "app")
	}, again: restarted},
	{
		name: "debugged", spec: app(forever), settled: kit.Ready, then: debug("busybox:1.36"),
		again: terminated("debug"), end: true,
	},
	{
		name: "gatedready", spec: "  readinessGates: [{conditionType: example.com/ready}]\n" + app(forever),
		settled: func(p *corev1.Pod) bool { return kit.Condition(p, corev1.ContainersReady) == corev1.ConditionTrue },
		then: func(t *testing.T, s *stage, p *corev1.Pod) {
			s.patch(t, p,
				`{"status": {"conditions": [{"type": "example.com/ready", "status": "True", "reason": "Because", "message": "it is"}]}}`, "status")
		}, again: kit.Ready, end: true,
	},
	{name: "static", static: true, spec: app(forever), settled: kit.Ready, event: "Started"},
	{
		name: "staticchanged", static: true, spec: app(forever), settled: kit.Ready,
		then: func(t *testing.T, s *stage, p *corev1.Pod) {
			s.manifest(t, "staticchanged", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: staticchanged\n  labels: {changed: "+
				"\"yes\"}\nspec:\n"+app(forever))
			s.ns.Wait(p.Name, "changed", func(again *corev1.Pod) bool { return again.Labels["changed"] == "yes" })
		}, again: kit.Ready,
	},
	{name: "staticends", static: true, spec: "  restartPolicy: Never\n" + app(`command: ["false"]`), settled: ended},
	{
		name: "preempted", spec: "  nodeName: testbed\n" + app(forever+", resources: {requests: {ephemeral-storage: $MOST}}"),
		settled: kit.Ready, then: func(_ *testing.T, s *stage, _ *corev1.Pod) {
			s.ns.Apply(s.filled("apiVersion: v1\nkind: Pod\nmetadata: {name: critical}\nspec:\n  nodeName: testbed\n  " +
				"priorityClassName: system-node-critical\n" + app(forever+", resources: {requests: {ephemeral-storage: $MOST}}")))
			s.ns.Running("critical")
		}, again: ended, event: "Preempting",
	},
}
