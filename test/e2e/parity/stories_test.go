package parity

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// story is a pod, and how to tell that what is to be compared has happened.
type story struct {
	name    string
	meta    string // more of the pod's metadata, as YAML
	spec    string // of the pod, as YAML
	static  bool   // from a file
	settled func(*corev1.Pod) bool
	// then, when given, does something to the settled pod; what is compared is how it settles again.
	then  func(*testing.T, *stage, *corev1.Pod)
	again func(*corev1.Pod) bool
	// look is a command in the container app whose output is compared.
	look string
	// event is one to wait for, if the status alone doesn't tell; eventText is in its message.
	event, eventText string
	// end, when true, compares how the pod is deleted too: its last status and its Killing Events.
	end bool
}

// forever is a command that ends at once when told to, and makes a file when it can.
const forever = `command: [sh, -c, 'trap "exit 0" TERM; touch /tmp/up; while :; do sleep 1000 & wait; done']`

// shared has containers share the file that forever makes.
const shared = ", volumeMounts: [{name: d, mountPath: /tmp}]"

func app(more string) string {
	return "  containers: [{name: app, image: \"busybox:1.36\", " + more + "}]\n"
}

// phase waits for a final phase; kubelot reports it before the sandbox has stopped, so that is waited for too.
func phase(p corev1.PodPhase) func(*corev1.Pod) bool {
	return func(pod *corev1.Pod) bool {
		return pod.Status.Phase == p && kit.Condition(pod, corev1.PodReadyToStartContainers) != corev1.ConditionTrue
	}
}

func waiting(reason string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Waiting != nil && s.State.Waiting.Reason == reason
	}
}

// running waits for a container that runs and isn't Ready.
func running(p *corev1.Pod) bool {
	s := kit.Status(p, "app")
	return s != nil && s.State.Running != nil && kit.Condition(p, corev1.PodReady) == corev1.ConditionFalse
}

func terminated(container string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool {
		s := kit.Status(p, container)
		return s != nil && s.State.Terminated != nil
	}
}

// stories are what is compared. Each settles in a state that doesn't change soon.
var stories = slices.Concat(basicStories, imageStories, lifeStories, viewStories, admissionStories)

var basicStories = []story{
	{name: "plain", spec: app(forever), settled: kit.Ready, event: "Started", end: true},
	{name: "resources", spec: app(forever + ", resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 100m, " +
		"memory: 32Mi}}"), settled: kit.Ready},
	{name: "guaranteed", spec: app(forever + ", resources: {limits: {cpu: 100m, memory: 32Mi}}"), settled: kit.Ready},
	{name: "init", spec: `
  initContainers:
  - {name: one, image: "busybox:1.36", command: ["true"]}
  - {name: side, image: "busybox:1.36", restartPolicy: Always, ` + forever + `}
` + app(forever), settled: kit.Ready, end: true},
	{name: "two", spec: "  containers: [{name: app, image: \"busybox:1.36\", " + forever +
		"}, {name: other, image: \"busybox:1.36\", " + forever + "}]\n", settled: kit.Ready, end: true},
	{
		name: "completed", spec: "  restartPolicy: Never\n" + app(`command: [sh, -c, "echo -n bye > /dev/termination-log"]`),
		settled: phase(corev1.PodSucceeded),
	},
	{
		name: "failed", spec: "  restartPolicy: Never\n" + app(`command: [sh, -c, "exit 3"]`),
		settled: phase(corev1.PodFailed),
	},
	{name: "halffailed", spec: "  restartPolicy: Never\n  containers: [{name: app, image: \"busybox:1.36\", " + forever +
		"}, {name: other, image: \"busybox:1.36\", command: [\"false\"]}]\n", settled: terminated("other"), end: true},
	{name: "initfailed", spec: "  restartPolicy: Never\n  initContainers: [{name: one, image: \"busybox:1.36\", " +
		"command: [\"false\"]}]\n" + app(forever), settled: phase(corev1.PodFailed)},
	{name: "initloop", spec: "  initContainers: [{name: one, image: \"busybox:1.36\", command: [\"false\"]}]\n" +
		app(forever), settled: func(p *corev1.Pod) bool {
		s := kit.Status(p, "one")
		return s != nil && s.RestartCount >= 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
	}, event: "BackOff"},
	{name: "jobwithsidecar", spec: "  restartPolicy: Never\n  initContainers: [{name: side, image: \"busybox:1.36\", " +
		"restartPolicy: Always, " + forever + shared + "}]\n" +
		app(`command: [sh, -c, "until [ -e /tmp/up ]; do sleep 0.1; done"]`+shared) +
		"  volumes: [{name: d, emptyDir: {}}]\n", settled: phase(corev1.PodSucceeded)},
	{name: "crash", spec: app(`command: [sh, -c, "exit 1"]`), settled: func(p *corev1.Pod) bool {
		return waiting("CrashLoopBackOff")(p) && kit.Status(p, "app").RestartCount >= 1
	}, event: "BackOff", end: true},
	{name: "nocommand", spec: app(`command: [/no/such]`), settled: func(p *corev1.Pod) bool {
		return waiting("CrashLoopBackOff")(p) && kit.Status(p, "app").RestartCount >= 1
	}, event: "Failed"},
	{name: "oom", spec: "  restartPolicy: Never\n" +
		app(`command: [sh, -c, "tail /dev/zero"], resources: {limits: {memory: 16Mi}}`), settled: phase(corev1.PodFailed)},
	{
		name: "late", spec: "  activeDeadlineSeconds: 600\n" + app(forever), settled: kit.Ready,
		then: deadline(5 * time.Second), again: phase(corev1.PodFailed), event: "DeadlineExceeded",
	},
	{
		name: "never", spec: "  containers: [{name: app, image: \"docker.io/library/absent:1\", imagePullPolicy: Never}]\n",
		settled: waiting("ErrImageNeverPull"), event: "Failed",
	},
	{
		name: "badname", spec: "  containers: [{name: app, image: \"Not_A_Name\"}]\n",
		settled: waiting("InvalidImageName"), event: "Failed",
	},
	{
		name: "nopull", spec: "  containers: [{name: app, image: \"127.0.0.1:1/no/such:1\"}]\n",
		settled: waiting("ImagePullBackOff"), event: "BackOff", end: true,
	},
	{
		name: "nonroot", spec: "  securityContext: {runAsNonRoot: true}\n" + app(forever),
		settled: waiting("CreateContainerConfigError"), event: "Failed",
	},
	{
		name: "noenv", spec: app(forever + ", env: [{name: A, valueFrom: {configMapKeyRef: {name: absent, key: a}}}]"),
		settled: waiting("CreateContainerConfigError"), event: "Failed",
	},
	{
		name: "nosecret", spec: app(forever + ", envFrom: [{secretRef: {name: absent}}]"),
		settled: waiting("CreateContainerConfigError"), event: "Failed",
	},
	{
		name:    "nokey",
		spec:    app(forever + ", env: [{name: A, valueFrom: {configMapKeyRef: {name: kube-root-ca.crt, key: absent}}}]"),
		settled: waiting("CreateContainerConfigError"), event: "Failed",
	},
	{
		name: "novolume", spec: app(forever+", volumeMounts: [{name: c, mountPath: /c}]") +
			"  volumes: [{name: c, configMap: {name: absent}}]\n", settled: waiting("ContainerCreating"),
		event: "FailedMount", end: true,
	},
	{
		name: "nosecretvolume", spec: app(forever+", volumeMounts: [{name: c, mountPath: /c}]") +
			"  volumes: [{name: c, secret: {secretName: absent}}]\n", settled: waiting("ContainerCreating"),
		event: "FailedMount",
	},
	{
		name: "nokeyvolume", spec: app(forever+", volumeMounts: [{name: c, mountPath: /c}]") +
			"  volumes: [{name: c, configMap: {name: kube-root-ca.crt, items: [{key: absent, path: p}]}}]\n",
		settled: waiting("ContainerCreating"), event: "FailedMount",
	},
	{
		name: "hostpath", spec: app(forever+", volumeMounts: [{name: h, mountPath: /h}]") +
			"  volumes: [{name: h, hostPath: {path: /proc/version, type: Directory}}]\n", settled: waiting("ContainerCreating"),
		event: "FailedMount",
	},
	{
		name: "noclaim", spec: "  nodeName: testbed\n  automountServiceAccountToken: false\n" +
			app(forever+", volumeMounts: [{name: c, mountPath: /c}]") +
			"  volumes: [{name: c, persistentVolumeClaim: {claimName: absent}}]\n", settled: waiting("ContainerCreating"),
		event: "FailedMount",
	},
	{name: "unusedvolume", spec: app(forever) + "  volumes: [{name: c, configMap: {name: absent}}]\n", settled: kit.Ready},
	{
		name: "subpath", spec: app(forever+", volumeMounts: [{name: c, mountPath: /c, subPath: ca.crt}, {name: e, "+
			"mountPath: /e, subPathExpr: $(HOSTNAME), readOnly: true}]") +
			"  volumes: [{name: c, configMap: {name: kube-root-ca.crt}}, {name: e, emptyDir: {}}]\n",
		settled: func(p *corev1.Pod) bool {
			return kit.Ready(p) || waiting("CreateContainerConfigError")(p)
		},
	},
	{name: "hostnet", spec: "  hostNetwork: true\n" + app(forever), settled: kit.Ready},
	{
		name: "poststart",
		spec: app(forever +
			`, lifecycle: {postStart: {exec: {command: [sh, -c, "until [ -e /tmp/up ]; do sleep 0.1; done; false"]}}}`),
		settled: func(p *corev1.Pod) bool {
			s := kit.Status(p, "app")
			return s != nil && s.RestartCount >= 1 && s.State.Waiting != nil && s.State.Waiting.Reason == "CrashLoopBackOff"
		}, event: "FailedPostStartHook",
	},
	{
		name: "prestop", spec: app(forever + `, lifecycle: {preStop: {exec: {command: ["false"]}}}`),
		settled: kit.Ready, end: true,
	},
	{
		name: "outofcpu", spec: "  nodeName: testbed\n" + app("resources: {requests: {cpu: 1000}}"),
		settled: phase(corev1.PodFailed),
	},
	{
		name: "selector", spec: "  nodeName: testbed\n  nodeSelector: {no: where}\n" + app(forever),
		settled: phase(corev1.PodFailed),
	},
	{
		name: "sysctl", spec: "  securityContext: {sysctls: [{name: kernel.msgmax, value: \"1\"}]}\n" + app(forever),
		settled: phase(corev1.PodFailed),
	},
	{
		name: "volumes",
		spec: app(forever+", volumeMounts: [{name: e, mountPath: /e}, {name: p, mountPath: /p, readOnly: true}]") +
			"  volumes: [{name: e, emptyDir: {medium: Memory}}, {name: p, projected: {sources: [{configMap: {name: " +
			"kube-root-ca.crt}}]}}]\n", settled: kit.Ready,
	},
	{name: "users", spec: "  securityContext: {runAsUser: 1000, supplementalGroups: [3000], fsGroup: 4000}\n" +
		app(forever), settled: kit.Ready},
	{
		name: "gated", spec: "  readinessGates: [{conditionType: example.com/ready}]\n" + app(forever),
		settled: func(p *corev1.Pod) bool { return kit.Condition(p, corev1.ContainersReady) == corev1.ConditionTrue },
	},
	{
		name: "probed",
		spec: app(forever +
			`, startupProbe: {exec: {command: ["true"]}, timeoutSeconds: 60}, livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60}, readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60}`), settled: kit.Ready, end: true,
	},
	{
		name:    "unready",
		spec:    app(forever + `, readinessProbe: {exec: {command: [cat, /no/such]}, periodSeconds: 1, timeoutSeconds: 60}`),
		settled: running, event: "Unhealthy",
	},
	{
		name: "unreadyslow", spec: app(forever + `, readinessProbe: {exec: {command: [sleep, "60"]}, periodSeconds: 1}`),
		settled: running, event: "Unhealthy",
	},
	{
		name: "unreadytcp", spec: app(forever + `, readinessProbe: {tcpSocket: {port: 81}, periodSeconds: 1}`),
		settled: running, event: "Unhealthy",
	},
	{
		name: "unreadyhttp", spec: app(forever + `, readinessProbe: {httpGet: {port: 81}, periodSeconds: 1}`),
		settled: running, event: "Unhealthy",
	},
	{
		name: "unreadygrpc", spec: app(forever + `, readinessProbe: {grpc: {port: 81}, periodSeconds: 1}`), settled: running,
		event: "Unhealthy",
	},
	{
		name: "unstarted",
		spec: app(forever +
			`, startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1000}`),
		settled: running, event: "Unhealthy", end: true,
	},
	{name: "ill", spec: "  restartPolicy: Never\n" +
		app(forever+
			`, livenessProbe: {exec: {command: [sh, -c, "[ ! -e /tmp/up ]"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1}`), settled: phase(corev1.PodSucceeded), event: "Killing"},
	{name: "illsidecar", spec: "  initContainers: [{name: side, image: \"busybox:1.36\", restartPolicy: Always, " +
		forever +
		`, startupProbe: {exec: {command: ["false"]}, periodSeconds: 1, timeoutSeconds: 60, failureThreshold: 1000}}]` +
		"\n" + app(forever), settled: func(p *corev1.Pod) bool {
		s := kit.Status(p, "side")
		return s != nil && s.State.Running != nil
	}, event: "Unhealthy"},
	{
		name: "unschedulable", spec: "  nodeSelector: {no: where}\n" + app(forever),
		settled: func(p *corev1.Pod) bool { return kit.Condition(p, corev1.PodScheduled) == corev1.ConditionFalse },
	},
	{name: "dns", spec: "  dnsPolicy: None\n  dnsConfig: {nameservers: [192.0.2.1], searches: [a.example]}\n" +
		app(forever), settled: kit.Ready},
	{
		name: "restartonfailure", spec: "  restartPolicy: OnFailure\n" + app(`command: ["true"]`),
		settled: phase(corev1.PodSucceeded),
	},
	{name: "overlimit", spec: app(forever+", volumeMounts: [{name: e, mountPath: /e}]") +
		"  volumes: [{name: e, emptyDir: {sizeLimit: 1Mi}}]\n", settled: kit.Ready},
}
