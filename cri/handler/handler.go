// Package handler is what the handlers of probes and of lifecycle hooks have in common: which address they mean, and
// how a request is sent to a server in a pod.
//
// # Reads and writes
//
// Nothing: the caller sends the requests.
//
// # Guarantees
//
// A server in a pod can't lead the node to another host, and no proxy stands between them. Its certificate isn't
// verified, as it can't be.
//
// Source: Kubernetes API reference, HTTPGetAction, TCPSocketAction and ContainerPort.
package handler

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const (
	// MaxBody bounds what is read of an answer, in bytes.
	MaxBody      = 10 << 10
	maxRedirects = 10
)

// errNoAddress is a pod whose address isn't known.
var errNoAddress = errors.New("failed to find networking container: the pod has no address")

// UserAgent is the kubelet's, which servers may look for; purpose is "probe" or "lifecycle".
func UserAgent(purpose string) string { return "kube-" + purpose + "/1.36" }

// Transport makes a transport that verifies no certificate, uses no proxy and keeps no connection.
func Transport() *http.Transport {
	return &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // documented behaviour of probes and hooks
		DisableKeepAlives: true,
	}
}

// FollowLocal is an http.Client's CheckRedirect: it follows redirects on the same host only.
func FollowLocal(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("stopped after %d redirects", maxRedirects)
	}
	return nil
}

// Target is where a handler's requests go unless it names another host.
type Target struct {
	// Container is whose named ports count.
	Container *corev1.Container
	// PodIP is the pod's primary address; on the host network the node's.
	PodIP string
}

// Request builds the request of an HTTPGetAction.
func (t Target) Request(ctx context.Context, action *corev1.HTTPGetAction, userAgent string) (*http.Request, error) {
	address, err := t.Address(action.Host, action.Port)
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
	u.Host = address
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	setHeaders(req, action.HTTPHeaders, userAgent)
	return req, nil
}

// Address is where a handler with that host and port connects to, as host:port.
func (t Target) Address(host string, port intstr.IntOrString) (string, error) {
	if host == "" {
		host = t.PodIP
	}
	if host == "" {
		return "", errNoAddress
	}
	number, err := t.port(port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// port resolves a port number or the name of one of the container's ports.
func (t Target) port(port intstr.IntOrString) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range t.Container.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port %q: neither a port number nor the name of a port of container %s",
			port.String(), t.Container.Name)
	}
	return number, nil
}

// setHeaders adds the action's headers and the defaults of those it doesn't mention; an empty Accept takes
// the header away.
func setHeaders(req *http.Request, headers []corev1.HTTPHeader, userAgent string) {
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
