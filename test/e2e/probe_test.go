package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/images"
)

var importTestServer = sync.OnceValue(func() error { return bed.ImportTestServer(context.Background()) })

// served is a container of the server that probes are tried on; more is the rest of the container's fields.
func served(t *testing.T, more string) string {
	t.Helper()
	if err := importTestServer(); err != nil {
		t.Fatal(err)
	}
	return "\n  containers:\n  - {name: app, image: \"" + images.TestServerRef +
		"\", ports: [{name: web, containerPort: 8080}, {name: rpc, containerPort: 9090}], " + more + "}\n"
}

// idle is a container that only waits.
func idle(more string) string {
	return "\n  containers:\n  - {name: app, image: \"busybox:1.36\", command: $FOREVER, " + more + "}\n"
}

// long is time enough for a probe on a busy machine; the default is a second.
const (
	long  = "timeoutSeconds: 60"
	hasty = "periodSeconds: 1, failureThreshold: 1"
	quick = hasty + ", " + long
)

// unready waits until the pod is not Ready, in the kubelet's words.
func unready(ns *kit.Namespace, name string) *corev1.Pod {
	return ns.Wait(name, "not Ready", func(p *corev1.Pod) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				s := kit.Status(p, "app")
				return c.Status == corev1.ConditionFalse && c.Reason == "ContainersNotReady" &&
					c.Message == "containers with unready status: [app]" &&
					s != nil && s.State.Running != nil && !s.Ready
			}
		}
		return false
	})
}

// A container is Ready while its probe succeeds, whatever the handler is; being not Ready restarts nothing.
func TestProbeReadiness(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	for _, c := range []struct{ name, spec, on, off, failure string }{
		{
			"exec", idle(`readinessProbe: {exec: {command: [cat, /tmp/ready]}, ` + quick + `}`),
			"touch /tmp/ready", "rm /tmp/ready",
			"Readiness probe failed: cat: can't open '/tmp/ready': No such file or directory",
		},
		{
			"http", served(t, `readinessProbe: {httpGet: {port: web, path: /healthz}, `+quick+`}`),
			"touch /tmp/healthy", "rm /tmp/healthy", "Readiness probe failed: HTTP probe failed with statuscode: 503",
		},
		{
			"tcp", idle(`readinessProbe: {tcpSocket: {port: 81}, ` + quick + `}`),
			"httpd -p 81", "killall httpd", "connect: connection refused",
		},
		{
			"grpc", served(t, `readinessProbe: {grpc: {port: 9090, service: app}, `+quick+`}`),
			"touch /tmp/healthy", "rm /tmp/healthy", `Readiness probe failed: service unhealthy (responded with "NOT_SERVING")`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			ns.Apply(pod(c.name, c.spec))
			p := unready(ns, c.name)
			event := ns.Event(c.name, "Unhealthy", c.failure)
			if event.Type != corev1.EventTypeWarning || event.InvolvedObject.FieldPath != "spec.containers{app}" ||
				event.Source.Component != "kubelet" {
				t.Errorf("Event: %+v", event)
			}
			ns.Exec(p, "app", c.on)
			ns.Running(c.name)
			ns.Exec(p, "app", c.off)
			p = unready(ns, c.name)
			if s := kit.Status(p, "app"); s.RestartCount != 0 || s.Started == nil || !*s.Started {
				t.Errorf("restarts %d, started %v; want 0, true", s.RestartCount, s.Started)
			}
		})
	}
}

// What a request may ask for, and how redirects and errors count.
func TestProbeHTTP(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	node := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(node.Close)
	_, nodePort, err := net.SplitHostPort(node.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, action, reason, event string
		ready                       bool
	}{
		{"header", `port: web, path: "/asks-for?header=X-A&value=b", httpHeaders: [{name: X-A, value: b}]`, "", "", true},
		{
			"hostheader",
			`port: web, path: "/asks-for?header=Host&value=a.example", httpHeaders: [{name: Host, value: a.example}]`, "", "",
			true,
		},
		{"agent", `port: web, path: "/asks-for?header=User-Agent&value=kube-probe/1.36"`, "", "", true},
		{"https", `port: 8443, path: "/asks-for?header=Accept&value=*/*", scheme: HTTPS`, "", "", true},
		{"big", `port: 8080, path: /big`, "", "", true},
		{"host", `port: ` + nodePort + `, host: 127.0.0.1`, "", "", true},
		{"redirect", `port: web, path: "/redirect?to=/asks-for"`, "", "", true},
		{
			"away", `port: web, path: "/redirect?to=http://other.example/"`, "ProbeWarning",
			"Readiness probe warning: Probe terminated redirects, Response body: <a href=", true,
		},
		{
			"noport", `port: none`, "Unhealthy",
			`Readiness probe errored and resulted in unknown state: invalid port "none": neither a port number nor the name of a port of container app`, false,
		},
		{
			"hang", `port: web, path: /hang`, "Unhealthy",
			"context deadline exceeded (Client.Timeout exceeded while awaiting headers)", false,
		},
	}
	for _, c := range tests {
		times := quick
		if c.name == "hang" {
			times = hasty
		}
		ns.Apply(pod(c.name, served(t, `readinessProbe: {httpGet: {`+c.action+`}, `+times+`}`)))
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			if c.ready {
				ns.Running(c.name)
			}
			if c.event != "" {
				ns.Event(c.name, c.reason, c.event)
			}
			if !c.ready {
				unready(ns, c.name)
			}
		})
	}
}

// A failed liveness probe restarts the container within the probe's own grace period.
func TestProbeLiveness(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const deaf = `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "trap '' TERM; while :; do sleep 1000 & wait; done"]
    livenessProbe: {exec: {command: [sh, -c, "echo it is ill; test ! -e /tmp/ill"]}, periodSeconds: 1, failureThreshold: 2, ` + long + `, terminationGracePeriodSeconds: 2}
`
	for _, c := range []struct{ name, policy, message string }{
		{"always", "Always", "Container app failed liveness probe, will be restarted"},
		{"never", "Never", "Container app failed liveness probe"},
	} {
		ns.Apply(strings.Replace(pod(c.name, deaf), "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: "+
			"600\n  restartPolicy: "+c.policy, 1))
		p := ns.Running(c.name)
		ns.HeedsTERM(p, "app")
		ns.Exec(p, "app", "touch /tmp/ill")
		ns.Event(c.name, "Unhealthy", "Liveness probe failed: it is ill\n")
		if event := ns.Event(c.name, "Killing", "Container app failed liveness probe"); event.Message != c.message {
			t.Errorf("%s: the Event says %q, want %q", c.name, event.Message, c.message)
		}
		// The probe's grace period is 2 s, and nobody waits as long as the pod's.
		if c.policy == "Never" {
			p = ns.Phase(c.name, corev1.PodFailed)
			if s := kit.Status(p, "app"); s.State.Terminated == nil || s.State.Terminated.ExitCode != 137 ||
				s.RestartCount != 0 {
				t.Errorf("never: %+v", s)
			}
		} else {
			ns.Wait(c.name, "restarted", func(p *corev1.Pod) bool { return kit.Restarts(p, "app") == 1 && kit.Ready(p) })
		}
		ns.Delete(c.name, 1) // by force, it would have ten minutes, as its own grace period says
	}
}

// A startup probe holds back the others until it succeeds, and restarts the container when it fails for good.
func TestProbeStartup(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	const log = `echo %s >> /tmp/log; `
	probe := func(kind, command, more string) string {
		return kind + `Probe: {exec: {command: [sh, -c, "` + fmt.Sprintf(log, kind) + command +
			`"]}, periodSeconds: 1, ` + long + more + `}`
	}
	ns.Apply(pod("gate", idle(probe("startup", "test -e /tmp/started", ", failureThreshold: 1000")+", "+probe("liveness",
		"true", "")+", "+probe("readiness", "true", ""))) +
		"---\n" + pod("fails", idle(probe("startup", "false", ", failureThreshold: 2"))))
	p := ns.Wait("gate", "three runs of its startup probe", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Running != nil && s.Started != nil && !*s.Started && !s.Ready
	})
	kit.Eventually(t, "three runs of the startup probe", func() error {
		if out, err := ns.Try(p, "app", "cat /tmp/log"); err != nil || strings.Count(out, "startup") < 3 ||
			strings.Contains(out, "ness") {
			return fmt.Errorf("runs %q, %w", out, err)
		}
		return nil
	})
	ns.Exec(p, "app", "touch /tmp/started")
	p = ns.Running("gate")
	if s := kit.Status(p, "app"); s.Started == nil || !*s.Started {
		t.Error("a Ready container isn't started")
	}
	kit.Eventually(t, "runs of the liveness probe", func() error {
		out, err := ns.Try(p, "app", "cat /tmp/log")
		if err != nil || strings.Count(out, "liveness") < 3 {
			return fmt.Errorf("runs %q, %w", out, err)
		}
		if _, after, _ := strings.Cut(out, "ness"); strings.Contains(after, "startup") {
			t.Errorf("the startup probe has run again: %q", out)
		}
		return nil
	})
	ns.Event("fails", "Unhealthy", "Startup probe failed: ")
	ns.Event("fails", "Killing", "Container app failed startup probe, will be restarted")
	ns.Wait("fails", "restarted", func(p *corev1.Pod) bool { return kit.Restarts(p, "app") >= 1 })
}

// A command that takes longer than it may has failed.
func TestProbeTimeout(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("slow",
		idle(`env: [{name: LONG, value: "60"}], readinessProbe: {exec: {command: [sleep, $(LONG)]}, `+hasty+`}`)))
	message := `Readiness probe failed: command timed out: "sleep 60" timed out after 1s`
	if bed.CRIO(t) {
		message = "Readiness probe failed: command timed out" // it hands that on as the command's output
	}
	ns.Event("slow", "Unhealthy", message)
	unready(ns, "slow")
}

// A sidecar's startup probe holds back what comes after it; its readiness counts for the pod, its liveness restarts it
// alone.
func TestProbeSidecar(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("side", `
  initContainers:
  - name: side
    image: busybox:1.36
    restartPolicy: Always
    command: $FOREVER
    # Of 25 Events on a pod at once the others are held back, so most runs wait rather than fail.
    startupProbe: {exec: {command: [sh, -c, "test -e /tmp/told && until [ -e /tmp/started ]; do sleep 0.1; done || cat /tmp/started"]}, periodSeconds: 1, failureThreshold: 1000, `+long+`}
    readinessProbe: {exec: {command: [sh, -c, "until [ -e /tmp/ready ]; do sleep 0.1; done"]}, `+quick+`}
    livenessProbe: {exec: {command: [sh, -c, "test ! -e /tmp/ill"]}, `+quick+`}
`+idle("env: []")))
	p := ns.Wait("side", "its sidecar running", func(p *corev1.Pod) bool {
		s := kit.Status(p, "side")
		return s != nil && s.State.Running != nil && s.Started != nil && !*s.Started
	})
	ns.Event("side", "Unhealthy", "Startup probe failed: cat: can't open '/tmp/started'")
	ns.Exec(p, "side", "touch /tmp/told")
	if s := kit.Status(p, "app"); s.State.Waiting == nil || s.State.Waiting.Reason != "PodInitializing" ||
		kit.Condition(p, corev1.PodInitialized) != corev1.ConditionFalse {
		t.Errorf("while the sidecar isn't started, the container is %+v", s.State)
	}
	ns.Exec(p, "side", "touch /tmp/started")
	p = ns.Wait("side", "its container running, and not Ready", func(p *corev1.Pod) bool {
		return kit.Status(p, "app").State.Running != nil && kit.Condition(p, corev1.PodReady) == corev1.ConditionFalse
	})
	ns.Exec(p, "side", "touch /tmp/ready")
	p = ns.Running("side")
	ns.Exec(p, "side", "touch /tmp/ill")
	event := ns.Event("side", "Killing", "Init container side failed liveness probe")
	if event.InvolvedObject.FieldPath != "spec.initContainers{side}" {
		t.Errorf("the Event is about %s", event.InvolvedObject.FieldPath)
	}
	p = ns.Wait("side", "its sidecar restarted", func(p *corev1.Pod) bool { return kit.Restarts(p, "side") == 1 })
	if s := kit.Status(p, "app"); s.RestartCount != 0 || s.State.Running == nil {
		t.Errorf("the other container: %+v", s)
	}
}

// While a pod ends, its readiness is still probed and its liveness no more.
func TestProbeTermination(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(patient(pod("ends", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, "trap 'until [ -e /tmp/end ]; do sleep 0.2; done; exit 0' TERM; while :; do sleep 1000 & wait; done"]
    readinessProbe: {exec: {command: [sh, -c, "echo ready >> /tmp/log; test ! -e /tmp/unready"]}, `+quick+`}
    livenessProbe: {exec: {command: [sh, -c, "echo live >> /tmp/log"]}, `+quick+`}
`)))
	p := ns.Running("ends")
	ns.HeedsTERM(p, "app")
	kit.Eventually(t, "both probes to run", func() error { return probed(ns, p, "live\n") })
	ns.Delete("ends", -1)
	kit.Eventually(t, "only the readiness probe to run", func() error {
		return probed(ns, p, strings.Repeat("ready\n", 6))
	})
	ns.Exec(p, "app", "touch /tmp/unready")
	unready(ns, "ends")
	ns.Exec(p, "app", "touch /tmp/end")
	ns.Gone(p)
}

// probed is an error unless the last runs of probes, which write one word each, are these.
func probed(ns *kit.Namespace, p *corev1.Pod, last string) error {
	log, err := ns.Try(p, "app", "cat /tmp/log")
	if err == nil && !strings.HasSuffix(log+"\n", last) {
		err = fmt.Errorf("the runs were %q", log)
	}
	return err
}
