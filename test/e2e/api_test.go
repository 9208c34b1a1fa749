package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// awaitAPI waits until the node's API listens: the node may be Ready before.
func awaitAPI(t *testing.T) {
	t.Helper()
	kit.Eventually(t, "the node's API", func() error {
		conn, err := net.Dial("tcp", net.JoinHostPort(bed.Bed.Gateway.String(), strconv.Itoa(bed.Node.Port)))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// try runs kubectl in the namespace with these additions to its environment and standard input.
func try(t *testing.T, ns *kit.Namespace, env []string, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kit.Patience)
	defer cancel()
	cmd := ns.KubectlCommand(ctx, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	return kit.Output(cmd)
}

// shows waits until kubectl shows just that.
func shows(t *testing.T, ns *kit.Namespace, want string, args ...string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("kubectl %v to show %q", args, want), func() error {
		out, err := ns.TryKubectl(args...)
		if err != nil || out != want {
			return errors.Join(fmt.Errorf("it shows %q", out), err)
		}
		return nil
	})
}

// Logs in all the ways that kubectl asks for them.
func TestLogs(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("talker", `
  initContainers: [{name: init, image: "busybox:1.36", command: [echo, from init]}]
  containers:
  - {name: app, image: "busybox:1.36", command: [sh, -c, 'for i in 1 2 3 4 5; do echo line $i; done; until [ -e /tmp/read ]; do sleep 0.2; done; echo oops >&2; trap "exit 0" TERM; while :; do sleep 0.5 & wait; done']}
  - {name: other, image: "busybox:1.36", command: $FOREVER}
`))
	p := ns.Running("talker")
	const all = "line 1\nline 2\nline 3\nline 4\nline 5\n"
	shows(t, ns, all, "logs", "talker", "-c", "app")
	ns.Exec(p, "app", "touch /tmp/read")
	shows(t, ns, all+"oops\n", "logs", "talker", "-c", "app")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", "init"}, "from init\n"},
		{[]string{"-c", "other"}, ""},
		{[]string{"-c", "app", "--limit-bytes=9"}, "line 1\nli"},
		{[]string{"-c", "app", "--tail=0"}, ""},
		{[]string{"-c", "app", "--since-time=2100-01-01T00:00:00Z"}, ""},
		{[]string{"-c", "app", "--tail=2"}, "line 5\noops\n"},
	} {
		shows(t, ns, test.want, append([]string{"logs", "talker"}, test.args...)...)
	}
	line, _, _ := strings.Cut(ns.Kubectl("logs", "talker", "-c", "app", "--timestamps"), "\n")
	if stamp, _, _ := strings.Cut(line, " "); len(stamp) < 20 {
		t.Errorf("no time before %q", line)
	} else if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Error(err)
	}
	if out := ns.Kubectl("logs", "talker", "-c", "app", "--since=1h"); !strings.Contains(out, "line 5") {
		t.Errorf("of the last hour: %q", out)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"-c", "app", "--previous"}, `previous terminated container "app" in pod "talker" not found`},
		{[]string{"-c", "none"}, "container none is not valid for pod talker"},
	} {
		if out, err := try(t, ns, nil, "", append([]string{"logs", "talker"}, test.args...)...); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("kubectl logs %v: %v, %q; want %q", test.args, err, out, test.want)
		}
	}
}

// The log of the container before, and what is told of one that doesn't start.
func TestLogsOfOthers(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("crasher", `
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'trap "exit 0" TERM; while [ -e /d/died ]; do sleep 0.5 & wait; done; touch /d/died; echo life of $(hostname); exit 3']
    volumeMounts: [{name: d, mountPath: /d}]
  volumes: [{name: d, emptyDir: {}}]
`))
	ns.Apply(pod("waiter", `
  containers: [{name: app, image: "no.such.registry/image:1"}]
`))
	ns.Wait("crasher", "a second container", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.RestartCount > 0 && s.LastTerminationState.Terminated != nil
	})
	shows(t, ns, "life of crasher\n", "logs", "crasher", "--previous")
	ns.Wait("waiter", "a failed pull", func(p *corev1.Pod) bool {
		s := kit.Status(p, "app")
		return s != nil && s.State.Waiting != nil && strings.Contains(s.State.Waiting.Reason, "ImagePull")
	})
	if out, err := try(t, ns, nil, "", "logs", "waiter"); err == nil || !strings.Contains(out, `container "app" in pod "waiter" is waiting to start:`) {
		t.Errorf("log of a container that waits: %v, %q", err, out)
	}
}

// A log that is followed goes on across rotations, and ends with the container.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("steady", `
  restartPolicy: Never
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, 'i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo the end']}]
`))
	p := ns.Running("steady")
	f := ns.Session(nil, nil, "logs", "-f", "steady")
	f.Shows("line 3\n")
	dir := filepath.Join(bed.Node.PodLogs, fmt.Sprintf("%s_%s_%s", p.Namespace, p.Name, p.UID), "app")
	_, id, _ := strings.Cut(kit.Status(p, "app").ContainerID, "://")
	for round := range 3 {
		path := filepath.Join(dir, "0.log")
		if err := os.Rename(path, fmt.Sprintf("%s.2026010%d-000000", path, round)); err != nil {
			t.Fatal(err)
		}
		reopenLog(t, id)
		// A file that is rotated again before kubectl has come to it may be lost.
		ns.Logged(p, "app", "\n")
		first, _, _ := strings.Cut(ns.Log(p, "app", 0), "\n")
		f.Shows(first + "\n")
	}
	ns.Exec(p, "app", "touch /tmp/stop")
	f.Shows("the end\n")
	if err := f.Ends(); err != nil {
		t.Errorf("kubectl logs -f ended with %v", err)
	}
	number := 0
	for line := range strings.Lines(f.String()) {
		if number++; line != fmt.Sprintf("line %d\n", number) && line != "the end\n" {
			t.Fatalf("line %d is %q: rotation lost or doubled something", number, line)
		}
	}
}

// Both protocols of kubectl: WebSockets, the default, and SPDY.
var protocols = map[string][]string{
	"websocket": {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true", "KUBECTL_PORT_FORWARD_WEBSOCKETS=true"},
	"spdy":      {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false"},
}

func TestExec(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("shell", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("shell")
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			streams := ns.KubectlCommand(t.Context(), "exec", "-i", "shell", "--", "sh", "-c", "cat; echo to stderr >&2")
			var stdout, stderr bytes.Buffer
			streams.Env, streams.Stdin, streams.Stdout, streams.Stderr = append(os.Environ(), env...), strings.NewReader("from stdin"), &stdout, &stderr
			if err := streams.Run(); err != nil || stdout.String() != "from stdin" || strings.Count(stderr.String(), "to stderr\n") != 1 {
				t.Errorf("exec -i: %v, %q, %q", err, &stdout, &stderr)
			}
			out, err := try(t, ns, env, "", "exec", "shell", "--", "sh", "-c", "exit 7")
			if exit := (&exec.ExitError{}); !errors.As(err, &exit) || exit.ExitCode() != 7 {
				t.Errorf("exit code: %v, %q; want 7", err, out)
			}
			if out, err := try(t, ns, env, "", "exec", "shell", "--", "no-such-program"); err == nil {
				t.Errorf("a program that isn't there: %q", out)
			}
			// script(1) gives kubectl a terminal.
			line := strings.Join(ns.KubectlCommand(t.Context(), "exec", "-it", "shell", "--", "sh", "-c", "'tty; until stty size 2>/dev/null | grep 77; do sleep 0.1; done'").Args, " ")
			cmd := exec.CommandContext(t.Context(), "script", "-qec", "stty rows 33 cols 77; "+line, "/dev/null")
			cmd.Env = append(os.Environ(), env...)
			terminal, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(terminal), "/dev/pts/") || !strings.Contains(string(terminal), "33 77") {
				t.Errorf("exec -it: %v, %q", err, terminal)
			}
		})
	}
}

// Files of some size go in and come out whole.
func TestCopy(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("box", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("box")
	dir := t.TempDir()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	if err := os.WriteFile(dir+"/in", content, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"cp", dir + "/in", "box:/tmp/file"}, {"cp", "box:/tmp/file", dir + "/" + name}} {
				if out, err := try(t, ns, env, "", args...); err != nil {
					t.Fatalf("kubectl %v: %v, %s", args, err, out)
				}
			}
			if got, err := os.ReadFile(dir + "/" + name); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes came back (%v), want %d", len(got), err, len(content))
			}
		})
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("echo", `
  containers: [{name: app, image: "busybox:1.36", stdin: true, command: [sh, -c, 'while read line; do echo "heard $line"; done']}]
`))
	ns.Running("echo")
	in, out := io.Pipe()
	f := ns.Session(nil, in, "attach", "-i", "echo")
	kit.Eventually(t, "the container's answer", func() error {
		if _, err := io.WriteString(out, "hello\n"); err != nil {
			return err
		}
		if text := f.String(); !strings.Contains(text, "heard hello") {
			return fmt.Errorf("so far: %q", text)
		}
		return nil
	})
	out.Close()
	f.Kill()
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("web", `
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, 'mkdir /tmp/www; echo it works > /tmp/www/index.html; exec httpd -f -p 8123 -h /tmp/www']}]
`))
	serves(t, ns, ns.Running("web"), "http://127.0.0.1:8123")
	for name, env := range protocols {
		t.Run(name, func(t *testing.T) {
			f := ns.Session(env, nil, "port-forward", "web", ":8123")
			f.Shows("-> 8123")
			_, rest, _ := strings.Cut(f.String(), "127.0.0.1:")
			port, _, _ := strings.Cut(rest, " ")
			for range 3 {
				if body := fetch(t, "http://127.0.0.1:"+port); body != "it works\n" {
					t.Errorf("through the forwarded port: %q", body)
				}
			}
			f.Kill()
		})
	}
}

// serves waits until the pod's container app answers at the URL.
func serves(t *testing.T, ns *kit.Namespace, p *corev1.Pod, url string) {
	t.Helper()
	kit.Eventually(t, url+" in pod "+p.Name, func() error {
		_, err := ns.Try(p, "app", "wget -q -O /dev/null "+url)
		return err
	})
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestDebug(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("patient", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.HeedsTERM(ns.Running("patient"), "app")
	in, out := io.Pipe()
	f := ns.Session(nil, in, "debug", "-i", "patient", "--image=busybox:1.36", "--target=app", "--", "sh")
	f.Shows("command prompt")
	if _, err := io.WriteString(out, "echo ephemeral $((40+2)); ps\n"); err != nil {
		t.Fatal(err)
	}
	f.Shows("ephemeral 42")
	// The debugger sees the target's processes.
	f.Shows("sleep 0.5")
	if _, err := io.WriteString(out, "exit\n"); err != nil {
		t.Fatal(err)
	}
	out.Close()
	if err := f.Ends(); err != nil {
		t.Errorf("kubectl debug ended with %v: %s", err, f)
	}
}

// Whatever the node serves is reached through the API server's proxy.
func TestNodeProxy(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("seen", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER, readinessProbe: {exec: {command: [\"true\"]}}}]\n"))
	ns.Running("seen")
	answers := func(path string, wants ...string) {
		t.Helper()
		kit.Eventually(t, fmt.Sprintf("%q at %s", wants, path), func() error {
			body, err := ns.TryKubectl("get", "--raw", "/api/v1/nodes/"+kit.NodeName+"/proxy"+path)
			for _, want := range wants {
				if err == nil && !strings.Contains(body, want) {
					err = fmt.Errorf("%.3000q lacks %q", body, want)
				}
			}
			return err
		})
	}
	for path, want := range map[string]string{
		"/healthz": "ok", "/healthz?verbose=true": "[+]syncloop ok", "/pods": ns.Name, "/runningpods/": ns.Name,
		"/configz": `"kubeletconfig"`, "/metrics": "kubelet_runtime_operations_total{", "/metrics/probes": "prober_probe_total{",
		"/metrics/resource": "node_memory_working_set_bytes ", "/metrics/cadvisor": "machine_cpu_cores",
		"/stats/summary": `"nodeName":"` + kit.NodeName + `"`, "/logs/": "<pre>", "/debug/pprof/goroutine?debug=1": "goroutine profile",
		"/containerLogs/" + ns.Name + "/seen/app": "", "/statusz": "kubelet statusz", "/flagz": kit.NodeName,
	} {
		answers(path, want)
	}
	answers("/metrics/slis", `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`) // of the checks that /healthz has made
	answers("/metrics", "kubelet_http_requests_total{", "kubelot_daemon_up{daemon=\"podsync\"} 1", "go_goroutines{daemon=\"api\"}",
		"kubelet_certificate_manager_server_ttl_seconds", "rest_client_requests_total")
	verbosity := func(v string) {
		t.Helper()
		data, err := bed.Client.CoreV1().RESTClient().Put().AbsPath("/api/v1/nodes/" + kit.NodeName + "/proxy/debug/flags/v").Body([]byte(v)).DoRaw(t.Context())
		if want := "successfully set klog.logging.verbosity to " + v; err != nil || string(data) != want {
			t.Errorf("PUT /debug/flags/v: %v, %q; want %q", err, data, want)
		}
	}
	verbosity("4")
	verbosity("0")
	run := "/api/v1/nodes/" + kit.NodeName + "/proxy/run/" + ns.Name + "/seen/app?cmd=echo%20ran"
	if out := ns.Kubectl("create", "--raw", run, "-f", "/dev/null"); strings.TrimSpace(out) != "ran" {
		t.Errorf("/run answers %q", out)
	}
	if out, err := try(t, ns, nil, "", "exec", "seen", "-c", "none", "--", "true"); err == nil {
		t.Errorf("exec into a container that isn't there: %q", out)
	}
}

// Many sessions at once all get their own output.
func TestManyExecs(t *testing.T) {
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("busy", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Running("busy")
	const sessions = 200
	client := streamClient(t, ns, "busy", "app")
	var wg sync.WaitGroup
	errs := make(chan error, sessions)
	for i := range sessions {
		wg.Go(func() {
			var out bytes.Buffer
			want := strconv.Itoa(i) + "\n"
			if err := client(t.Context(), []string{"sh", "-c", "sleep 1; echo " + strconv.Itoa(i)}, &out); err != nil {
				errs <- fmt.Errorf("session %d: %w", i, err)
			} else if out.String() != want {
				errs <- fmt.Errorf("session %d got %q", i, out.String())
			}
		})
	}
	wg.Wait()
	close(errs)
	failed := 0
	for err := range errs {
		if failed++; failed <= 5 {
			t.Error(err)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d sessions failed", failed, sessions)
	}
}
