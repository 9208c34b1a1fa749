package handler

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// A pod's author chooses path, scheme and headers. Whatever they are, the request goes to the address of the probe, and
// is one request: nothing in it begins another.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{
		"", "/healthz", "healthz?a=b", "//other/x", "//user:word@other:1/x", "http://other/x", "mailto:x", "/%", "/a b",
		"\r\n\r\nGET /", "?#x",
	} {
		f.Add(path, "HTTP", "X-Name", "value")
	}
	f.Add("/", "https", "Host", "other")
	f.Add("/", "", "Host", "other\r\nX: y")
	f.Add("/", "ftp", "A\r\nB: c", "d\r\nE: f\r\n\r\nGET / HTTP/1.1")
	f.Add("/", "", "Content-Length", "9")
	f.Fuzz(func(t *testing.T, path, scheme, name, value string) {
		action := &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(8080), Scheme: corev1.URIScheme(scheme),
			HTTPHeaders: []corev1.HTTPHeader{{Name: name, Value: value}},
		}
		target := Target{Container: &corev1.Container{}, PodIP: "10.1.2.3"}
		req, err := target.Request(t.Context(), action, UserAgent("probe"))
		if err != nil {
			return
		}
		// http.Client refuses a URL without a host.
		if host := req.URL.Host; host != "" && host != "10.1.2.3:8080" {
			t.Fatalf("the request goes to %q", host)
		}
		var sent bytes.Buffer
		if err := req.Write(&sent); err != nil {
			return
		}
		reader := bufio.NewReader(&sent)
		got, err := http.ReadRequest(reader)
		if err != nil {
			return // the server refuses it
		}
		if got.Method != http.MethodGet {
			t.Errorf("method %q", got.Method)
		}
		if rest, _ := io.ReadAll(reader); len(rest) > 0 && !strings.EqualFold(name, "Content-Length") &&
			!strings.EqualFold(name, "Transfer-Encoding") {
			t.Errorf("another request follows: %q", rest)
		}
	})
}
