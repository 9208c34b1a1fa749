package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

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

// Whatever the node serves is reached through the API server's proxy.
func TestNodeProxy(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	ns.Apply(pod("seen", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER, readinessProbe: {exec: "+
		"{command: [\"true\"]}}}]\n"))
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
		"/configz": `"kubeletconfig"`, "/metrics": "kubelet_runtime_operations_total{",
		"/metrics/probes":   "prober_probe_total{",
		"/metrics/resource": "node_memory_working_set_bytes ", "/metrics/cadvisor": "machine_cpu_cores",
		"/stats/summary": `"nodeName":"` + kit.NodeName + `"`, "/logs/": "<pre>",
		"/debug/pprof/goroutine?debug=1":          "goroutine profile",
		"/containerLogs/" + ns.Name + "/seen/app": "", "/statusz": "kubelet statusz", "/flagz": kit.NodeName,
	} {
		answers(path, want)
	}
	// of the checks that /healthz has made
	answers("/metrics/slis", `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`)
	answers("/metrics", "kubelet_http_requests_total{", "kubelot_daemon_up{daemon=\"podsync\"} 1",
		"go_goroutines{daemon=\"api\"}",
		"kubelet_certificate_manager_server_ttl_seconds", "rest_client_requests_total")
	verbosity := func(v string) {
		t.Helper()
		// It needs all daemons, and other tests kill some.
		kit.Eventually(t, "PUT /debug/flags/v", func() error {
			data, err := bed.Client.CoreV1().RESTClient().Put().AbsPath("/api/v1/nodes/" + kit.NodeName +
				"/proxy/debug/flags/v").Body([]byte(v)).DoRaw(t.Context())
			if want := "successfully set klog.logging.verbosity to " + v; err == nil && string(data) != want {
				err = fmt.Errorf("it answers %q; want %q", data, want)
			}
			return err
		})
	}
	verbosity("4")
	verbosity("0")
	run := "/api/v1/nodes/" + kit.NodeName + "/proxy/run/" + ns.Name + "/seen/app?cmd=echo%20ran"
	var out string
	if _, err := kit.OnceShimAnswers(func() (err error) {
		out, err = ns.TryKubectl("create", "--raw", run, "-f", "/dev/null")
		return told(err, out)
	}); err != nil || strings.TrimSpace(out) != "ran" {
		t.Errorf("/run answers %q, %v", out, err)
	}
	if out, err := try(t, ns, nil, "", "exec", "seen", "-c", "none", "--", "true"); err == nil {
		t.Errorf("exec into a container that isn't there: %q", out)
	}
}
