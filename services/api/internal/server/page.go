package server

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"kubelot.dev/services/api/internal/gather"
)

// page passes a path on to the socket of the daemon that serves it.
func page(daemon, runDir string) http.HandlerFunc {
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: daemon})
			// Credentials are for this daemon.
			r.Out.Header.Del("Authorization")
		},
		Transport: gather.Transport(runDir, daemon),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, fmt.Sprintf("kubelot-%s, which serves %s, doesn't answer: %v", daemon, r.URL.Path, err), http.StatusServiceUnavailable)
		},
	}
	return pass.ServeHTTP
}
