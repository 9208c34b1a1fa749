package hooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// userAgent is the kubelet's, which servers may look for.
	userAgent = "kube-lifecycle/1.36"
	// maxBody bounds what is read of an answer that nobody looks at, in bytes.
	maxBody      = 10 << 10
	maxRedirects = 10
)

// newHTTPClient makes a client for servers in pods: their certificates can't be verified (LifecycleHandler.httpGet),
// and no proxy stands before them.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // documented behaviour of hooks
			DisableKeepAlives: true,
		},
		CheckRedirect: followLocal,
	}
}

// followLocal follows redirects on the same host only: the node must not be led to other ones by a pod.
func followLocal(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	return nil
}

// runHTTP sends a request; whatever the answer is, the hook has run.
func (r *Runner) runHTTP(ctx context.Context, target Target, action *corev1.HTTPGetAction) error {
	req, err := newRequest(ctx, target, action)
	if err != nil {
		return err
	}
	err = r.send(req)
	if !isHTTPAnswer(err) {
		return err
	}
	// Hooks with scheme HTTPS were once sent as HTTP, and pods rely on it. Credentials are for HTTPS only.
	plain := req.Clone(ctx)
	plain.URL.Scheme = "http"
	plain.Header.Del("Authorization")
	if r.send(plain) != nil {
		return err
	}
	if r.Warn != nil {
		r.Warn(target, ReasonHTTPFallback, fmt.Sprintf("request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", req.URL.Host))
	}
	return nil
}

func (r *Runner) send(req *http.Request) error {
	resp, err := r.http.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	return resp.Body.Close()
}

// isHTTPAnswer recognises net/http's error, which has no type.
func isHTTPAnswer(err error) bool {
	var e *url.Error
	return errors.As(err, &e) && strings.Contains(e.Err.Error(), "server gave HTTP response to HTTPS client")
}

// newRequest builds the request of an HTTPGetAction.
func newRequest(ctx context.Context, target Target, action *corev1.HTTPGetAction) (*http.Request, error) {
	host := action.Host
	if host == "" {
		host = target.PodIP
	}
	if host == "" {
		return nil, errors.New("failed to find networking container: the pod has no address")
	}
	port, err := containerPort(action.Port, target.Container)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path}
	}
	u.Scheme = strings.ToLower(string(action.Scheme))
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	setHeaders(req, action.HTTPHeaders)
	return req, nil
}

// setHeaders adds the action's headers and the defaults of those it doesn't mention; an empty Accept takes
// the header away.
func setHeaders(req *http.Request, headers []corev1.HTTPHeader) {
	for _, h := range headers {
		req.Header.Add(h.Name, h.Value)
	}
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header.Set("User-Agent", userAgent)
	}
	if _, ok := req.Header["Accept"]; !ok {
		req.Header.Set("Accept", "*/*")
	} else if req.Header.Get("Accept") == "" {
		req.Header.Del("Accept")
	}
	// net/http takes the Host header from here only.
	req.Host = req.Header.Get("Host")
}

// containerPort resolves a port number or the name of one of the container's ports.
func containerPort(port intstr.IntOrString, container *corev1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port %q: neither a port number nor the name of a port of container %s", port.String(), container.Name)
	}
	return number, nil
}
