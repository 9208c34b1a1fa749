package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"kubelot.dev/services/api/internal/gather"
)

// pagePatience is how long another daemon may take for a page.
const pagePatience = 20 * time.Second

// page passes a path on to the socket of the daemon that serves it, which has some time to answer.
func page(daemon, runDir string, patience time.Duration) http.HandlerFunc {
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: daemon})
			// The read-only port takes no credentials, which some send nevertheless.
			r.Out.Header.Del("Authorization")
		},
		Transport: gather.Transport(runDir, daemon),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, fmt.Sprintf("kubelot-%s, which serves %s, doesn't answer: %v", daemon, r.URL.Path,
				err), http.StatusServiceUnavailable)
		},
	}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		pass.ServeHTTP(w, r.WithContext(ctx))
	}
}
