package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Who takes gzip gets gzip, once and whole, whatever the inner handler says of the length; others get plain text.
func TestCompressed(t *testing.T) {
	text := strings.Repeat("kubelet_running_pods 1\n", 1000)
	for header, want := range map[string]bool{
		"": false, "gzip": true, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip; q=0.000": false, "GZIP": true,
		"gzip;q=x": false, "identity": false, "xgzip": false, "deflate , gzip": true,
	} {
		for _, code := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			handler := compressed(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if inner := r.Header.Get("Accept-Encoding"); want && inner != "" {
					t.Errorf("the inner handler sees Accept-Encoding %q", inner)
				}
				w.Header().Set("Content-Length", "23000")
				w.WriteHeader(code)
				_, _ = io.WriteString(w, text)
			}))
			request := httptest.NewRequest("GET", "/metrics", nil)
			request.Header.Set("Accept-Encoding", header)
			answer := httptest.NewRecorder()
			handler.ServeHTTP(answer, request)
			var body io.Reader = answer.Body
			if packed := answer.Header().Get("Content-Encoding") == "gzip"; packed != want {
				t.Errorf("%q: gzip %v, want %v", header, packed, want)
			} else if packed {
				if answer.Body.Len() > len(text)/10 || answer.Header().Get("Content-Length") != "" {
					t.Errorf("%q: %d bytes, Content-Length %q", header, answer.Body.Len(), answer.Header().Get("Content-Length"))
				}
				var err error
				if body, err = gzip.NewReader(body); err != nil {
					t.Fatal(err)
				}
			}
			if data, err := io.ReadAll(body); err != nil || string(data) != text || answer.Code != code {
				t.Errorf("%q: %d, %d bytes, %v", header, answer.Code, len(data), err)
			}
		}
	}
}

// An answer without a body stays one.
func TestCompressedNothing(t *testing.T) {
	request := httptest.NewRequest("GET", "/metrics", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	answer := httptest.NewRecorder()
	compressed(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(answer, request)
	if answer.Body.Len() != 0 || answer.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d bytes, %q", answer.Body.Len(), answer.Header().Get("Content-Encoding"))
	}
}
