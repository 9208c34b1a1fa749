package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
	"kubelot.dev/services/api/internal/auth"
)

// The API server is asked about a request by its path (package auth), and http.ServeMux chooses the handler by its own
// reading of the same path. Both must mean the same: a request that is reviewed as a scrape of metrics must not run a
// command.
func FuzzPathsMeanWhatServeMuxMeans(f *testing.F) {
	b := &bed{t: &testing.T{}, dir: f.TempDir()}
	lines := "enableDebuggingHandlers: true\nenableSystemLogQuery: true\nfeatureGates: {NodeLogQuery: true}\n"
	env := daemon.Env{Config: b.config(lines), Metrics: prometheus.NewRegistry()}
	service, err := New(env, nil)
	if err != nil {
		f.Fatal(err)
	}
	mux, ok := service.routes().(*http.ServeMux)
	if !ok {
		f.Fatal("the routes are no ServeMux")
	}
	for _, path := range append(slices.Clone(paths),
		"/exec/ns/pod/c", "/exec/ns/pod/uid/c", "/exec%2Fns/pod/c", "/%65xec/ns/pod/c",
		"/metrics/../exec/ns/pod/c", "//exec/ns/pod/c",
		"/metrics%2F..%2Fexec/ns/pod/c", "/pods/", "/pods/x", "/podsx", "/stats/summary/", "/logs", "/logs/syslog",
		"/logs/../run/ns/pod/c",
		"/run/ns/pod/c;/pods", "/attach/ns/pod/c?x=/pods", "http://host/pods", "*", "/runningpods", "/runningpods/",
		"/debug/flags/v", "/healthz/syncloop",
	) {
		f.Add("GET", path)
		f.Add("POST", path)
		f.Add("CONNECT", path)
	}
	rules := auth.Rules{Node: "n1"}
	f.Fuzz(func(t *testing.T, method, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		r := &http.Request{Method: method, URL: u, Host: "node", RequestURI: target}
		handler, pattern := mux.Handler(r)
		if pattern == "" || strings.HasSuffix(fmt.Sprintf("%T", handler), ".redirectHandler") {
			return // nothing is served, or the client is sent to another path
		}
		// The pattern's words up to its first wildcard are what the path must begin with.
		_, path, found := strings.Cut(pattern, " ")
		if !found {
			path = pattern
		}
		path, _, _ = strings.Cut(path, "{")
		meant := &http.Request{Method: method, URL: &url.URL{Path: strings.TrimSuffix(path, "/")}}
		if got, want := reviewedAs(rules, r), reviewedAs(rules, meant); !slices.Equal(got, want) {
			t.Errorf("%s %q is served by %q; it is reviewed as %v, and that path as %v", method, target, pattern, got, want)
		}
	})
}

// reviewedAs are the verbs and subresources that a request is reviewed as.
func reviewedAs(rules auth.Rules, r *http.Request) (all []string) {
	for _, a := range rules.Attributes(nil, r) {
		all = append(all, a.GetVerb()+" "+a.GetSubresource())
	}
	return all
}
