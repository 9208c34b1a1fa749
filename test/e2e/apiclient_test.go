package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/e2e/kit"
)

func reopenLog(t *testing.T, id string) {
	t.Helper()
	if _, err := bed.CRI.Runtime().ReopenContainerLog(t.Context(),
		&runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

// streamClient runs commands in a container through the API server, over WebSockets, without a process for each.
func streamClient(t *testing.T, ns *kit.Namespace, pod, container string) func(ctx context.Context, command []string,
	out io.Writer) error {
	t.Helper()
	config, err := bed.ControlPlane.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, command []string, out io.Writer) error {
		request := bed.Client.CoreV1().RESTClient().Get().Resource("pods").Namespace(ns.Name).Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true}, scheme.ParameterCodec)
		executor, err := remotecommand.NewWebSocketExecutor(config, "GET", request.URL().String())
		if err != nil {
			return err
		}
		return executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out})
	}
}

// Nobody gets anything from the node itself without credentials, and a user without rights no more.
func TestNodeAPIRefuses(t *testing.T) {
	t.Parallel()
	awaitAPI(t)
	ns := bed.Namespace(t)
	token := strings.TrimSpace(ns.Kubectl("create", "token", "default"))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	ask := func(path, authorization string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("https://%s:%d%s",
			bed.Bed.Gateway, bed.Node.Port, path), nil)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			request.Header.Set("Authorization", "Bearer "+authorization)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	// refuses waits for the refusal, for the node says 401 where it can't ask the API server in time; it never grants
	// anything.
	refuses := func(path, authorization string, want int) {
		kit.Eventually(t, fmt.Sprintf("%s to refuse %.8q with %d", path, authorization, want), func() error {
			code := ask(path, authorization)
			if code < http.StatusBadRequest {
				t.Fatalf("%s for %.8q: %d", path, authorization, code)
			}
			if code != want {
				return fmt.Errorf("status %d", code)
			}
			return nil
		})
	}
	for _, path := range []string{
		"/", "/healthz", "/pods", "/runningpods/", "/stats/summary", "/metrics", "/metrics/resource",
		"/metrics/cadvisor", "/metrics/probes",
		"/containerLogs/a/b/c", "/exec/a/b/c", "/attach/a/b/c", "/portForward/a/b", "/run/a/b/c", "/logs/", "/configz",
		"/debug/pprof/", "/checkpoint/a/b/c",
	} {
		refuses(path, "", http.StatusUnauthorized)
		refuses(path, "nonsense", http.StatusUnauthorized)
		refuses(path, token, http.StatusForbidden)
	}
	ns.Kubectl("create", "clusterrolebinding", ns.Name, "--clusterrole=system:kubelet-api-admin",
		"--serviceaccount="+ns.Name+":default")
	t.Cleanup(func() {
		_ = bed.Client.RbacV1().ClusterRoleBindings().Delete(context.Background(), ns.Name, metav1.DeleteOptions{})
	})
	kit.Eventually(t, "the service account's rights", func() error {
		if code := ask("/metrics", token); code != http.StatusOK {
			return fmt.Errorf("status %d", code)
		}
		return nil
	})
}
