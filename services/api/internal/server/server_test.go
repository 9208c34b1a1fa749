package server

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

const record = "2026-01-01T00:00:01Z stdout F hello\n"

func TestContainerLogs(t *testing.T) {
	b := newBed(t, "")
	path := filepath.Join(b.dir, "0.log")
	if err := os.WriteFile(path, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	b.pod(path, topic.ContainerRunning)
	const base = "/containerLogs/ns/web/app"
	b.wants("GET", base, 200, "hello\n")
	b.wants("GET", base+"?tailLines=x", 400, `{"message": "Unable to decode query."}`)
	b.wants("GET", base+"?tailLines=-1", 422, `{"message": "Invalid request."}`)
	b.wants("GET", base+"?previous=true", 400, `previous terminated container "app" in pod "web" not found`)
	b.wants("GET", "/containerLogs/ns/none/app", 404, `pod "none" does not exist`)
	b.wants("GET", "/containerLogs/ns/web/none", 404, `container "none" not found in pod "web"`)
	b.wants("GET", "/containerLogs/ns/web", 404, "")
	b.wants("POST", base, 405, "")
}

// The log of a container that is removed: the kubelet's words, in an answer that has begun.
func TestLogOfARemovedContainer(t *testing.T) {
	b := newBed(t, "")
	b.pod("", topic.ContainerExited)
	b.wants("GET", "/containerLogs/ns/web/app", 200, "unable to retrieve container logs for containerd://c1")
	b.pod(filepath.Join(b.dir, "gone.log"), topic.ContainerExited)
	b.wants("GET", "/containerLogs/ns/web/app", 200, "no such file or directory")
}

func TestLogIsFollowedToTheContainersEnd(t *testing.T) {
	b := newBed(t, "")
	path := filepath.Join(b.dir, "0.log")
	if err := os.WriteFile(path, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	b.pod(path, topic.ContainerRunning)
	done := make(chan struct{})
	time.AfterFunc(100*time.Millisecond, func() {
		defer close(done)
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(record)
			f.Close()
		}
		if err != nil {
			t.Error(err)
		}
		b.pod(path, topic.ContainerExited)
	})
	b.wants("GET", "/containerLogs/ns/web/app?follow=true", 200, "hello\nhello\n")
	<-done
}

// A client that goes away ends the work for it, however late the runtime is.
func TestLateRuntime(t *testing.T) {
	b := newBed(t, "")
	b.pod("", topic.ContainerRunning)
	called := make(chan struct{}, 2)
	wait := func(ctx context.Context, _ any) error {
		called <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	b.fake.On("Exec", wait)
	b.fake.On("ContainerStatus", wait)
	for _, path := range []string{"/exec/ns/web/app?output=1&command=true", "/containerLogs/ns/web/app"} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-called
			cancel()
		}()
		answer := httptest.NewRecorder()
		b.service.routes().ServeHTTP(answer, httptest.NewRequest("GET", path, nil).WithContext(ctx))
		// What is written is for nobody; that the handler ended is what counts.
	}
}

func TestPods(t *testing.T) {
	b := newBed(t, "")
	b.wants("GET", "/pods", 200, `"items":null`)
	b.pod("", topic.ContainerRunning)
	for path, check := range map[string]func(p corev1.Pod) bool{
		"/pods": func(p corev1.Pod) bool {
			return len(p.Status.ContainerStatuses) == 1 && p.Spec.Containers[0].Name == "app"
		},
		"/runningpods/": func(p corev1.Pod) bool { return p.Spec.Containers[0].Image == "i" && p.UID == "u1" },
	} {
		_, body := b.call("GET", path)
		var list corev1.PodList
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 1 ||
			!check(list.Items[0]) {
			t.Errorf("%s: %s, %v", path, body, err)
		}
	}
}

func TestStreamsRefuseNonsense(t *testing.T) {
	b := newBed(t, "")
	b.pod("", topic.ContainerRunning)
	b.wants("GET", "/exec/ns/web/app?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr")
	b.wants("POST", "/attach/ns/web/app", 400, "you must specify at least 1 of stdin, stdout, stderr")
	b.wants("GET", "/exec/ns/none/app?output=1", 404, "pod does not exist")
	b.wants("GET", "/exec/ns/web/other-uid/app?output=1", 404, "pod not found")
	b.wants("GET", "/exec/ns/web/none?output=1", 500, `container not found ("none")`)
	b.wants("GET", "/attach/ns/web/none?output=1", 500, "container none not found in pod web_ns")
	b.wants("POST", "/portForward/ns/none", 404, "pod does not exist")
	b.wants("POST", "/run/ns/none/app?cmd=true", 404, "pod does not exist")
	b.wants("POST", "/checkpoint/ns/web/none", 404, "container none does not exist")
	b.wants("POST", "/checkpoint/ns/web/app?timeout=soon", 404, "cannot parse value of timeout parameter")
}

func TestHealthz(t *testing.T) {
	b := newBed(t, "")
	b.wants("GET", "/healthz", 500, "[-]syncloop failed: reason withheld\n[-]device-plugin failed: reason withheld\n"+
		"healthz check failed")
	b.wants("GET", "/healthz/syncloop", 500, "kubelot-podsync has not reported yet")
	b.wants("GET", "/healthz/device-plugin", 500, "kubelot-resource has not reported yet")
	b.wants("GET", "/healthz?exclude=syncloop&exclude=device-plugin", 200, "ok")
	says := func(name string, h topic.DaemonHealth) {
		t.Helper()
		if err := b.health[name].Set(name, h); err != nil {
			t.Fatal(err)
		}
	}
	for name := range b.health {
		says(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()})
	}
	b.until(func() bool { code, _ := b.call("GET", "/healthz"); return code == 200 })
	b.wants("GET", "/healthz?verbose", 200,
		"[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed\n")
	b.wants("GET", "/metrics/slis", 200, `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`)

	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		health topic.DaemonHealth
		code   int
		says   string
	}{
		{topic.DaemonHealth{State: topic.Unhealthy, Message: "a policy", Beat: time.Now()}, 500, "not healthy: a policy"},
		{topic.DaemonHealth{State: topic.Healthy, Beat: long, Asleep: true}, 200, "ok"},
		{topic.DaemonHealth{State: topic.Healthy, Beat: long}, 500, "kubelot-resource last reported at"},
	} {
		says("resource", c.health)
		b.until(func() bool {
			code, body := b.call("GET", "/healthz/device-plugin")
			return code == c.code && strings.Contains(body, c.says)
		})
	}

	says("resource", topic.DaemonHealth{State: topic.Degraded, Beat: time.Now()})
	for _, why := range []string{"the address is in use", ""} {
		if err := b.resources.Set("", topic.NodeResources{RegistrationError: why}); err != nil {
			t.Fatal(err)
		}
		b.until(func() bool {
			code, body := b.call("GET", "/healthz/device-plugin")
			return code == 500 && why != "" && strings.Contains(body, "device plugins can't register: "+why) ||
				code == 200 && why == ""
		})
	}
}

// A fresh node has no directory for checkpoints.
func TestCheckpointOnAFreshNode(t *testing.T) {
	b := newBed(t, "")
	b.pod("", topic.ContainerRunning)
	_, body := b.call("POST", "/checkpoint/ns/web/app")
	info, err := os.Stat(filepath.Join(b.dir, "checkpoints"))
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v; the answer is %s", info, err, body)
	}
}

// Neither the address of a stream nor what reads the static pods' URL is for everybody who asks.
func TestSecretsAreKept(t *testing.T) {
	b := newBed(t, "staticPodURLHeader: {Authorization: [secret]}\nstaticPodURL: https://u:secret@h/pods?key=secret\n")
	b.service.env.Flags = map[string]string{
		"manifest-url": "https://u:secret@h/pods?key=secret", "manifest-url-header": "Authorization:secret",
		"storage-driver-password": "secret", "v": "2",
	}
	for _, path := range []string{"/configz", "/flagz"} {
		if _, body := b.call("GET", path); strings.Contains(body, "secret") || !strings.Contains(body,
			"https://masked@h/pods?masked") {
			t.Errorf("%s: %s", path, body)
		}
	}
	b.wants("GET", "/configz", 200, `"staticPodURLHeader":{"Authorization":["\u003cmasked\u003e"]}`)
	if got := b.service.env.Config.Kubelet.StaticPodURLHeader["Authorization"]; got[0] != "secret" {
		t.Errorf("the configuration itself was changed to %v", got)
	}
	answer := httptest.NewRecorder()
	if _, ok := b.service.findStream(answer, "/exec/secret", nil); ok || answer.Code != 500 ||
		strings.Contains(answer.Body.String(), "secret") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestHeadOfAStream(t *testing.T) {
	b := newBed(t, "")
	b.pod("", topic.ContainerRunning)
	for _, path := range []string{
		"/exec/ns/web/app?output=1", "/exec/ns/web/u1/app?output=1",
		"/attach/ns/web/app?output=1", "/portForward/ns/web", "/portForward/ns/web/u1",
	} {
		b.wants("HEAD", path, 405, "")
	}
	if calls := b.fake.Calls("Exec") + b.fake.Calls("Attach") + b.fake.Calls("PortForward"); calls > 0 {
		t.Errorf("the runtime was asked for %d streams", calls)
	}
}

// Another daemon that hangs doesn't hold up its caller for ever.
func TestPageOfADaemonThatHangs(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "metrics"), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "metrics", "stats.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	answer := httptest.NewRecorder()
	page("stats", dir, 50*time.Millisecond)(answer, httptest.NewRequestWithContext(t.Context(), "GET",
		"/metrics/resource", nil))
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(answer.Body.String(), "kubelot-stats") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestPagesOfOthersThatAreAway(t *testing.T) {
	b := newBed(t, "")
	for _, path := range []string{"/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/stats/summary"} {
		b.wants("GET", path, http.StatusServiceUnavailable, "kubelot-")
	}
}

// Logs of the machine are shown, and nothing that a link leads to elsewhere.
func TestSystemLogs(t *testing.T) {
	b := newBed(t, "")
	b.service.systemLogs = filepath.Join(b.dir, "log")
	secret := filepath.Join(b.dir, "secret")
	for _, err := range []error{
		os.Mkdir(b.service.systemLogs, 0o700), os.WriteFile(filepath.Join(b.service.systemLogs, "x.log"),
			[]byte("inside"), 0o600),
		os.WriteFile(secret, []byte("outside"), 0o600), os.Symlink(secret, filepath.Join(b.service.systemLogs, "abs")),
		os.Symlink("../secret", filepath.Join(b.service.systemLogs, "rel")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.wants("GET", "/logs/", 200, "x.log")
	b.wants("GET", "/logs/x.log", 200, "inside")
	for _, path := range []string{
		"/logs/abs", "/logs/rel", "/logs/../secret", "/logs/%2e%2e/secret",
		"/logs//etc/passwd",
	} {
		if code, body := b.call("GET", path); code == 200 || strings.Contains(body, "outside") {
			t.Errorf("%s: %d %q", path, code, body)
		}
	}
}

func TestSwitchedOff(t *testing.T) {
	b := newBed(t, "enableDebuggingHandlers: false\n")
	for _, path := range []string{"/exec/a/b/c", "/logs/", "/debug/pprof/", "/containerLogs/a/b/c", "/runningpods/"} {
		b.wants("GET", path, 405, "Debug endpoints are disabled.")
	}
	b.wants("GET", "/pods", 200, "PodList")
	b = newBed(t, "enableSystemLogHandler: false\nenableProfilingHandler: false\n")
	b.wants("GET", "/logs/", 405, "logs endpoint is disabled.")
	b.wants("GET", "/debug/pprof/", 405, "profiling endpoint is disabled.")
	b.wants("GET", "/configz", 200,
		`{"kubeletconfig":{"kind":"KubeletConfiguration","apiVersion":"kubelet.config.k8s.io/v1beta1"`)
}

// The read-only port shows, and does nothing.
func TestReadOnly(t *testing.T) {
	b := newBed(t, "")
	for path, want := range map[string]int{
		"/pods": 200, "/metrics": 200, "/exec/ns/web/app": 404,
		"/containerLogs/ns/web/app": 404, "/configz": 404, "/logs/": 404,
	} {
		answer := httptest.NewRecorder()
		b.service.readOnly().ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		if answer.Code != want {
			t.Errorf("%s: %d, want %d", path, answer.Code, want)
		}
	}
}

func FuzzStreams(f *testing.F) {
	f.Add("input=1&output=1&error=1&tty=1&port=80,443&port=1")
	f.Add("port=0")
	f.Add("port=,")
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		if s, err := parseStreams(values); err == nil && (s.tty && s.stderr || !s.stdin && !s.stdout && !s.stderr) {
			t.Errorf("%s became %+v", text, s)
		}
		ports, err := parsePorts(values)
		for _, p := range ports {
			if p < 1 || p > 65535 {
				t.Errorf("%s became port %d", text, p)
			}
		}
		if err == nil && len(ports) == 0 {
			t.Errorf("%s became no port", text)
		}
	})
}

// A client that takes nothing holds up nobody else, and not for ever.
func TestSlowReader(t *testing.T) {
	b := newBed(t, "streamingConnectionIdleTimeout: 300ms\n")
	path := filepath.Join(b.dir, "0.log")
	if err := os.WriteFile(path, []byte("2026-01-01T00:00:01Z stdout F "), 0o600); err != nil {
		t.Fatal(err)
	}
	// A hole reads as zeros: a line that no buffer between the two takes.
	if err := os.Truncate(path, 256<<20); err != nil {
		t.Fatal(err)
	}
	b.pod(path, topic.ContainerRunning)
	ended := make(chan struct{})
	routes := b.service.routes()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		routes.ServeHTTP(w, r)
		if strings.HasPrefix(r.URL.Path, "/containerLogs/") {
			close(ended)
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /containerLogs/ns/web/app HTTP/1.1\r\nHost: n1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	b.wants("GET", "/pods", 200, "PodList")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the client that reads nothing is still served")
	}
}
