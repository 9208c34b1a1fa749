package hooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// fakeExec answers as told, or hangs until its context ends.
type fakeExec struct {
	stdout, stderr string
	code           int32
	err            error
	hang           bool
	id             string
	command        []string
	timeout        time.Duration
}

func (f *fakeExec) ExecSync(ctx context.Context, id string, command []string,
	timeout time.Duration,
) ([]byte, []byte, int32, error) {
	f.id, f.command, f.timeout = id, command, timeout
	if f.hang {
		<-ctx.Done()
		return nil, nil, 0, errors.New("rpc error: canceled")
	}
	return []byte(f.stdout), []byte(f.stderr), f.code, f.err
}

func testTarget() Target {
	return Target{
		Pod:         &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns", UID: "u"}},
		Container:   &corev1.Container{Name: "app", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}},
		ContainerID: "c-1",
		PodIP:       "127.0.0.1",
	}
}

func wantText(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func execHook(command ...string) *corev1.LifecycleHandler {
	return &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: command}}
}

func TestExec(t *testing.T) {
	exec := &fakeExec{}
	if err := New(exec).Run(t.Context(), testTarget(), execHook("sh", "-c", "true")); err != nil {
		t.Fatal(err)
	}
	if exec.id != "c-1" || len(exec.command) != 3 {
		t.Errorf("ran %v in %s", exec.command, exec.id)
	}

	exec = &fakeExec{stdout: "out", stderr: "bad", code: 3}
	err := New(exec).Run(t.Context(), testTarget(), execHook("sh", "-c", "x"))
	wantText(t, err,
		`Exec lifecycle hook ([sh -c x]) for Container "app" in Pod "web_ns(u)" failed - error: command 'sh -c x' exited with 3: bad, message: "outbad"`)

	exec = &fakeExec{err: errors.New("no such container")}
	err = New(exec).Run(t.Context(), testTarget(), execHook("x"))
	wantText(t, err,
		`Exec lifecycle hook ([x]) for Container "app" in Pod "web_ns(u)" failed - error: no such container, message: ""`)

	exec = &fakeExec{stdout: strings.Repeat("é", maxOutput), code: 1}
	if err = New(exec).Run(t.Context(), testTarget(), execHook("x")); err == nil || len(err.Error()) > maxOutput+500 {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exec := &fakeExec{hang: true}
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Second, errors.New("the grace period is over"))
		defer cancel()
		began := time.Now()
		err := New(exec).Run(ctx, testTarget(), execHook("x"))
		if err == nil || !strings.Contains(err.Error(), "the grace period is over") || time.Since(began) != 5*time.Second {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		if exec.timeout != 5*time.Second {
			t.Errorf("the runtime got %v", exec.timeout)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hook := func(seconds int64) *corev1.LifecycleHandler {
			return &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}}
		}
		began := time.Now()
		if err := New(nil).Run(t.Context(), testTarget(), hook(0)); err != nil || time.Since(began) != 0 {
			t.Errorf("zero seconds: %v after %v", err, time.Since(began))
		}
		if err := New(nil).Run(t.Context(), testTarget(), hook(3)); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := New(nil).Run(ctx, testTarget(), hook(9))
		wantText(t, err,
			`Sleep lifecycle hook (9) for Container "app" in Pod "web_ns(u)" failed - error: container terminated before sleep hook finished`)
	})
}

func TestInvalidHandlers(t *testing.T) {
	for want, hook := range map[string]*corev1.LifecycleHandler{
		"tcpSocket is no lifecycle hook": {TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}},
		"it has none of exec":            {},
	} {
		if err := New(nil).Run(t.Context(), testTarget(), hook); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// serve starts a server and gives the action that asks it.
func serve(t *testing.T, secure bool, handler http.HandlerFunc) *corev1.HTTPGetAction {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = nil
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.HTTPGetAction{Port: intstr.Parse(u.Port()), Path: "/hook?q=1"}
}

func TestHTTP(t *testing.T) {
	var got *http.Request
	action := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		got = r
		w.WriteHeader(http.StatusInternalServerError)
	})
	action.HTTPHeaders = []corev1.HTTPHeader{
		{Name: "X-A", Value: "1"},
		{Name: "X-A", Value: "2"},
		{Name: "Host", Value: "h.example"},
		{Name: "Accept"},
	}
	if err := New(nil).Run(t.Context(), testTarget(), &corev1.LifecycleHandler{HTTPGet: action}); err != nil {
		t.Fatalf("%v: the status of the answer doesn't matter", err)
	}
	_, accept := got.Header["Accept"]
	if got.URL.String() != "/hook?q=1" || got.Host != "h.example" || len(got.Header["X-A"]) != 2 || accept ||
		got.Header.Get("User-Agent") != "kube-lifecycle/1.36" {
		t.Errorf("got %s %s %v", got.Host, got.URL, got.Header)
	}
}

func TestHTTPSIsNotVerified(t *testing.T) {
	action := serve(t, true, func(http.ResponseWriter, *http.Request) {})
	action.Scheme = corev1.URISchemeHTTPS
	if err := New(nil).Run(t.Context(), testTarget(), &corev1.LifecycleHandler{HTTPGet: action}); err != nil {
		t.Error(err)
	}
}

func TestHTTPSFallsBack(t *testing.T) {
	var authorization []string
	action := serve(t, false, func(_ http.ResponseWriter, r *http.Request) {
		authorization = append(authorization, r.Header.Get("Authorization"))
	})
	action.Scheme = corev1.URISchemeHTTPS
	action.HTTPHeaders = []corev1.HTTPHeader{{Name: "Authorization", Value: "Bearer s3cret"}}
	r := New(nil)
	warned := ""
	r.Warn = func(_ Target, reason, message string) { warned = reason + ": " + message }
	if err := r.Run(t.Context(), testTarget(), &corev1.LifecycleHandler{HTTPGet: action}); err != nil {
		t.Fatal(err)
	}
	if len(authorization) != 1 || authorization[0] != "" ||
		!strings.HasPrefix(warned, "LifecycleHTTPFallback: request to HTTPS lifecycle hook 127.0.0.1:") {
		t.Errorf("sent %q, warned %q", authorization, warned)
	}
}

func TestRedirectsStayOnTheHost(t *testing.T) {
	led := false
	other := serve(t, false, func(http.ResponseWriter, *http.Request) { led = true })
	local := 0
	action := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		local++
		if r.URL.Path == "/hook" {
			http.Redirect(w, r, "/next", http.StatusFound)
			return
		}
		http.Redirect(w, r, "http://localhost:"+other.Port.String()+"/", http.StatusFound)
	})
	if err := New(nil).Run(t.Context(), testTarget(), &corev1.LifecycleHandler{HTTPGet: action}); err != nil {
		t.Fatal(err)
	}
	if led || local != 2 {
		t.Errorf("%d requests; led to another host: %v", local, led)
	}
}

func TestHTTPErrors(t *testing.T) {
	hook := func(port intstr.IntOrString) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/x", Port: port}}
	}
	for _, port := range []intstr.IntOrString{intstr.FromString("none"), intstr.FromInt32(0), intstr.FromInt32(70000)} {
		err := New(nil).Run(t.Context(), testTarget(), hook(port))
		if err == nil || !strings.Contains(err.Error(), "invalid port") {
			t.Errorf("%s: got %v", port.String(), err)
		}
	}
	target := testTarget()
	target.PodIP = ""
	err := New(nil).Run(t.Context(), target, hook(intstr.FromString("http")))
	wantText(t, err,
		`HTTP lifecycle hook (/x) for Container "app" in Pod "web_ns(u)" failed - error: failed to find networking container: the pod has no address`)
}
