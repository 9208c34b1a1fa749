package handler

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func target(podIP string) Target {
	return Target{PodIP: podIP, Container: &corev1.Container{
		Name:  "app",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
	}}
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		action corev1.HTTPGetAction
		want   string
	}{
		{corev1.HTTPGetAction{Port: intstr.FromString("http")}, "http://[fd00::1]:8080"},
		{corev1.HTTPGetAction{Port: intstr.FromString("81"), Path: "a"}, "http://[fd00::1]:81/a"},
		{corev1.HTTPGetAction{Port: intstr.FromInt32(82), Host: "h", Scheme: "HTTPS", Path: "/%zz"}, "https://h:82/%25zz"},
	} {
		req, err := target("fd00::1").Request(t.Context(), &c.action, "a/1")
		if err != nil || req.URL.String() != c.want || req.Header.Get("User-Agent") != "a/1" ||
			req.Header.Get("Accept") != "*/*" {
			t.Errorf("got %v, %v, want %s", req, err, c.want)
		}
	}
}

func TestHeaders(t *testing.T) {
	action := &corev1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: []corev1.HTTPHeader{
		{Name: "host", Value: "h.example"},
		{Name: "x-a", Value: "1"},
		{Name: "X-A", Value: "2"},
		{Name: "Accept"},
		{Name: "User-Agent"},
	}}
	req, err := target("10.0.0.1").Request(t.Context(), action, "a/1")
	if err != nil {
		t.Fatal(err)
	}
	_, accept := req.Header["Accept"]
	if req.Host != "h.example" || len(req.Header["X-A"]) != 2 || accept || req.Header.Get("User-Agent") != "" {
		t.Errorf("host %q, headers %v", req.Host, req.Header)
	}
}

func TestAddressErrors(t *testing.T) {
	for _, port := range []intstr.IntOrString{intstr.FromString("none"), intstr.FromInt32(0), intstr.FromInt32(70000)} {
		if _, err := target("10.0.0.1").Address("", port); err == nil ||
			!strings.Contains(err.Error(), "nor the name of a port of container app") {
			t.Errorf("%s: got %v", port.String(), err)
		}
	}
	if _, err := target("").Address("", intstr.FromInt32(1)); !errors.Is(err, errNoAddress) {
		t.Errorf("got %v", err)
	}
}

func TestFollowLocal(t *testing.T) {
	request := func(text string) *http.Request {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Request{URL: u}
	}
	via := []*http.Request{request("http://a:1/")}
	if err := FollowLocal(request("https://a:2/x"), via); err != nil {
		t.Errorf("the same host: %v", err)
	}
	if err := FollowLocal(request("http://b/"), via); !errors.Is(err, http.ErrUseLastResponse) {
		t.Errorf("another host: %v", err)
	}
	for range maxRedirects {
		via = append(via, request("http://a:1/"))
	}
	if err := FollowLocal(request("http://a:1/"), via); err == nil {
		t.Error("an endless chain is followed")
	}
}
