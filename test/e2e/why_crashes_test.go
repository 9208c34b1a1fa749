package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// crashing is a pod whose containers end with the codes, again and again.
func crashing(commands map[string]string) string {
	var list []string
	for name, command := range commands {
		list = append(list, fmt.Sprintf(`{name: %s, image: "busybox:1.36", command: [sh, -c, '%s']}`, name, command))
	}
	return "  containers: [" + strings.Join(list, ", ") + "]\n"
}

// Exit codes that mean something by themselves, and containers that are ended for what they do.
func TestWhyExitCodes(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	// A container's first process is spared the signals that it sends itself.
	ends := func(signal string) string { return `sh -c "kill -` + signal + ` \$\$"; exit $?` }
	explained(t, ns, []stuck{
		{"codes", crashing(map[string]string{
			"segv": ends("SEGV"), "killed": ends("KILL"), "abort": ends("ABRT"), "term": ends("TERM"),
			"mode": "/etc/passwd", "says": "echo no database >&2; exit 255",
		}), []string{
			"container segv keeps ending with exit code 139, which means that it crashed by a wrong memory access (started ",
			"container killed keeps ending with exit code 137, which means that it was killed (SIGKILL) (started ",
			"container abort keeps ending with exit code 134, which means that it aborted (SIGABRT) (started ",
			"container term keeps ending with exit code 143, which means that it was told to end (SIGTERM) (started ",
			"container mode keeps ending with exit code 126, which means that a shell in it may not run a command (started ",
			"container says keeps ending with exit code 255, which means that the program says so itself",
		}},
		{"hungry", container(`command: [tail, /dev/zero], resources: {limits: {memory: 16Mi}}`, ""), []string{
			"container app needs more memory than its limit of 16Mi (started ",
			"-> raise resources.limits.memory of container app",
		}},
		{"pod", container(`command: [tail, /dev/zero]`, "  resources: {limits: {memory: 24Mi}}\n"), []string{
			"container app is killed for lack of memory, without a limit of its own",
		}},
		// The runtime must learn of the lack of memory before the container's end.
		{"once", container(`command: [sh, -c, "tail /dev/zero; sleep 10; exit 137"], resources: {limits: {memory: 16Mi}}`,
			"  restartPolicy: Never\n"), []string{"it has failed: container app needed more memory than it may have"}},
		{"init", "  restartPolicy: Never\n" + first("[sh, -c, exit 4]"), []string{
			"it has failed: ", "container first ended with exit code 4",
		}},
	})
}

// What ends or holds up a container that runs: its probes and its hooks.
func TestWhyHooks(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const listens = "periodSeconds: 1, failureThreshold: 10, " + long // the server does so before it is killed
	explained(t, ns, []stuck{
		{"liveport", container(`livenessProbe: {tcpSocket: {port: 82}, `+quick+`}`, ""), []string{
			"container app is restarted because its liveness probe (TCP :82) fails: nothing listens at ",
		}},
		{"livehttp", served(t, `livenessProbe: {httpGet: {port: web, path: /healthz}, `+listens+`}`), []string{
			"container app is restarted because its liveness probe (GET :web/healthz) fails: the answer is HTTP 503",
		}},
		{"livegrpc", served(t, `livenessProbe: {grpc: {port: 9090}, `+listens+`}`), []string{
			"container app is restarted because its liveness probe (gRPC :9090) fails: " +
				"the gRPC health service answers NOT_SERVING",
		}},
		{"startport", container(`startupProbe: {httpGet: {port: 83}, `+quick+`}`, ""), []string{
			"container app is restarted because its startup probe (GET :83/) fails: nothing listens at ",
		}},
		{"hookport", container(`lifecycle: {postStart: {httpGet: {port: 84, path: /hook}}}`, ""), []string{
			"its postStart hook (GET :84/hook) fails: nothing listens at ",
		}},
		{"hookprogram", container(`lifecycle: {postStart: {exec: {command: [nosuch]}}}`, ""), []string{
			`its postStart hook (nosuch) fails: the image has no program "nosuch" in its PATH`,
		}},
		{"sidecar", "  initContainers: [{name: proxy, image: \"busybox:1.36\", command: $FOREVER, restartPolicy: Always, " +
			"startupProbe: {tcpSocket: {port: 15021}, periodSeconds: 1, failureThreshold: 3000}}]\n" +
			container("", ""), []string{
			"sidecar proxy isn't ready, because its startup probe (TCP :15021) has not succeeded in the ",
			"is waiting: 0 of 2 containers ready",
		}},
		{"initprogram", first("[nosuch]"), []string{
			`init container first can't start: the image has no program "nosuch" in its PATH`,
		}},
	})
}

// Probes that keep a pod from being ready, by what becomes of the question.
func TestWhyProbeAnswers(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	explained(t, ns, []stuck{
		{
			"timeout", container(`readinessProbe: {exec: {command: [sleep, "600"]}, `+hasty+`, timeoutSeconds: 1}`, ""),
			[]string{"its readiness probe (sleep 600) has failed for ", ": the answer takes longer than its timeout"},
		},
		{
			"hang", served(t, `readinessProbe: {httpGet: {port: web, path: /hang}, `+hasty+`, timeoutSeconds: 1}`),
			[]string{"its readiness probe (GET :web/hang) has failed for ", ": the answer takes longer than its timeout"},
		},
		{"status", served(t, `readinessProbe: {httpGet: {port: web, path: /healthz}, `+quick+`}`), []string{
			"its readiness probe (GET :web/healthz) has failed for ", ": the answer is HTTP 503",
		}},
		{"tls", served(t, `readinessProbe: {httpGet: {port: web, scheme: HTTPS}, `+quick+`}`), []string{
			"its readiness probe (GET :web/) has failed for ", ": the TLS of the answer is wrong: ",
		}},
		{"grpc", served(t, `readinessProbe: {grpc: {port: 9090}, `+quick+`}`), []string{
			"its readiness probe (gRPC :9090) has failed for ", ": the gRPC health service answers NOT_SERVING",
		}},
		{"service", served(t, `readinessProbe: {grpc: {port: 9090, service: other}, `+quick+`}`), []string{
			"its readiness probe (gRPC :9090) has failed for ",
			": the gRPC health service doesn't know the service that the probe asks for",
		}},
		{"nogrpc", served(t, `readinessProbe: {grpc: {port: 8080}, `+quick+`}`), []string{
			"its readiness probe (gRPC :8080) has failed for ", ": the answer takes longer than its timeout",
		}},
		{"name", container(`readinessProbe: {httpGet: {port: nosuch}, `+quick+`}`, ""), []string{
			"its readiness probe (GET :nosuch/) ", ": the probe's port isn't one of the container's",
		}},
		{"nowhere", container(`readinessProbe: {tcpSocket: {port: 81, host: 255.255.255.255}, `+quick+`}`, ""), []string{
			"its readiness probe (TCP :81) has failed for ", ": 255.255.255.255:81 can't be reached from this node",
		}},
		{"host", container(`readinessProbe: {httpGet: {port: 81, host: nosuch.invalid}, `+quick+`}`, ""), []string{
			"its readiness probe (GET :81/) has failed for ", ": nobody knows the host nosuch.invalid",
		}},
		{"program", container(`readinessProbe: {exec: {command: [curl, -f, localhost]}, `+quick+`}`, ""), []string{
			"its readiness probe (curl -f localhost) has not succeeded in the ",
			`: the image has no "curl", which the probe runs`,
		}},
	})
}

// deafContainer is a pod's spec with a container that never ends by itself, nor when it is told to.
func deafContainer(fields string) string {
	return `  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, ` +
		`'trap "" TERM; touch /up; while :; do sleep 1000 & wait; done'], ` + fields + "}]\n"
}

// A container that is being ended for its liveness probe, and takes its time.
func TestWhyLivenessEnds(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(patient(pod("deaf", deafContainer(`livenessProbe: {exec: {command: [sh, -c, "echo stuck; ! test -e /up"]}, `+
		quick+`}, readinessProbe: {exec: {command: ["false"]}, `+quick+`}`))))
	says(t, ns, "deaf", "container app is being restarted, because its liveness probe (sh -c echo stuck; ! test -e /up) "+
		"failed: stuck", "waits for: the container to end")
	ns.Delete("deaf", 1)
}

// Pods whose preStop hook is over, or has failed.
func TestWhyAfterHooks(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	deaf := func(name, hook string) string {
		return patient(pod(name, deafContainer(`lifecycle: {preStop: {`+hook+`}}`)))
	}
	ns.Apply(deaf("fails", `exec: {command: [sh, -c, "echo no peers >&2; exit 3"]}`) + "\n---\n" +
		deaf("over", `sleep: {seconds: 1}`) + "\n---\n" + deaf("refused", `httpGet: {port: 85}`))
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"fails", "over", "refused"} {
		pods[name] = ns.Running(name)
		ns.HeedsTERM(pods[name], "app")
		ns.Delete(name, -1)
	}
	says(t, ns, "fails", "its preStop hook (sh -c echo no peers >&2; exit 3) has failed (exit code 3, no peers), and its "+
		"program ignores the signal, or takes its time")
	says(t, ns, "over", " since its preStop hook (sleep 1 s) was over: its program ignores the signal, or takes its time")
	says(t, ns, "refused", "its preStop hook (GET :85/) has failed (nothing listens at ")
	for name, p := range pods {
		ns.Delete(name, 1)
		ns.Gone(p)
	}
}

// A sidecar waits for its turn.
func TestWhySidecarWaits(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(patient(pod("web", "  initContainers: [{name: proxy, image: \"busybox:1.36\", command: $FOREVER, "+
		"restartPolicy: Always}]\n"+container(`command: [sh, -c, 'trap "" TERM; while :; do sleep 1000 & wait; done']`, ""))))
	p := ns.Running("web")
	ns.HeedsTERM(p, "app")
	ns.Delete("web", -1)
	says(t, ns, "web", "container app has not ended in the ", "also: container proxy still runs",
		"waits for: its turn: sidecars end after the other containers")
	ns.Delete("web", 1)
	ns.Gone(p)
}

// A debug container that can't start is told of, though the pod is ready.
func TestWhyDebugContainer(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("web", container("", "")))
	ns.Running("web")
	image := bed.Registry.Addr + "/no/such:1"
	ns.Kubectl("debug", "web", "--image="+image, "--container=look", "--profile=general")
	says(t, ns, "web", "debug container look can't start: the image "+image+" doesn't exist in the registry ",
		"is ready: 1 container ready")
}
