package server

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubelot.dev/services/api/internal/auth"
)

// reviewer is an API server that knows the tokens admin and nobody, and allows admin what is in may ("verb
// subresource"). It doesn't review the token away.
func reviewer(t *testing.T, may map[string]bool, asked *[]string) kubernetes.Interface {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", func(w http.ResponseWriter, r *http.Request) {
		reviewed(t, w, r, func(review *authenticationv1.TokenReview) int {
			token := review.Spec.Token
			review.Status.Authenticated = token == "admin" || token == "nobody"
			review.Status.User.Username = token
			if token == "away" {
				return http.StatusForbidden
			}
			return http.StatusCreated
		})
	})
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews",
		func(w http.ResponseWriter, r *http.Request) {
			reviewed(t, w, r, func(review *authorizationv1.SubjectAccessReview) int {
				a := review.Spec.ResourceAttributes
				what := a.Verb + " " + a.Subresource
				*asked = append(*asked, what)
				review.Status.Allowed = review.Spec.User == "admin" && may[what] && a.Resource == "nodes" && a.Name == "n1"
				return http.StatusCreated
			})
		})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// reviewed reads a review, has it decided, and answers with it.
func reviewed[T any](t *testing.T, w http.ResponseWriter, r *http.Request, decide func(*T) int) {
	var review T
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		t.Error(err)
	}
	code := decide(&review)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(review); err != nil {
		t.Error(err)
	}
}

// everyPath is each path that is served, with what is asked about it.
var everyPath = []struct{ method, path, asked string }{
	{"GET", "/healthz", "get healthz,get proxy"},
	{"GET", "/healthz/ping", "get healthz,get proxy"},
	{"GET", "/healthz/log", "get healthz,get proxy"},
	{"GET", "/healthz/syncloop", "get healthz,get proxy"},
	{"GET", "/pods", "get pods,get proxy"},
	{"GET", "/pods/", "get pods,get proxy"},
	{"GET", "/runningpods/", "get pods,get proxy"},
	{"GET", "/configz", "get configz,get proxy"},
	{"GET", "/stats/summary", "get stats"},
	{"POST", "/stats/summary", "create stats"},
	{"GET", "/metrics", "get metrics"},
	{"GET", "/metrics/resource", "get metrics"},
	{"GET", "/metrics/cadvisor", "get metrics"},
	{"GET", "/metrics/probes", "get metrics"},
	{"GET", "/metrics/slis", "get metrics"},
	{"GET", "/logs/", "get log"},
	{"GET", "/logs/x.log", "get log"},
	{"GET", "/logs/?query=kubelet", "get log"},
	{"GET", "/logs?query=kubelet", "get log"},
	{"GET", "/statusz", "get statusz"},
	{"GET", "/flagz", "get configz"},
	{"PUT", "/debug/flags/v", "update proxy"},
	{"POST", "/checkpoint/ns/web/app", "create checkpoint"},
	{"GET", "/containerLogs/ns/web/app", "get proxy"},
	{"GET", "/exec/ns/web/app", "create proxy"},
	{"POST", "/exec/ns/web/app", "create proxy"},
	{"GET", "/exec/ns/web/u1/app", "create proxy"},
	{"GET", "/attach/ns/web/app", "create proxy"},
	{"POST", "/attach/ns/web/u1/app", "create proxy"},
	{"GET", "/portForward/ns/web", "create proxy"},
	{"POST", "/portForward/ns/web/u1", "create proxy"},
	{"POST", "/run/ns/web/app", "create proxy"},
	{"GET", "/run/ns/web/app", "create proxy"},
	{"GET", "/debug/pprof/", "get proxy"},
	{"GET", "/debug/pprof/cmdline", "get proxy"},
	{"GET", "/", "get proxy"},
	{"GET", "/nonsense", "get proxy"},
	{"GET", "/podsnonsense", "get proxy"},
	{"DELETE", "/pods", "delete pods,delete proxy"},
	{"GET", "/healthz/../exec/ns/web/app", "get healthz,get proxy"},
}

func TestNoPathIsOpen(t *testing.T) {
	b := newBed(t, "")
	for _, p := range everyPath {
		t.Run(p.method+" "+p.path, func(t *testing.T) {
			for _, c := range []struct {
				token string
				code  int
			}{
				{"", http.StatusUnauthorized},
				{"wrong", http.StatusUnauthorized},
				{"away", http.StatusUnauthorized},
				{"nobody", http.StatusForbidden},
			} {
				code, body, reached, asked := through(t, b, p.method, p.path, c.token, map[string]bool{})
				if code != c.code || reached {
					t.Errorf("token %q: %d %q, reached: %v; want %d", c.token, code, body, reached, c.code)
				}
				if c.token == "nobody" && asked != p.asked {
					t.Errorf("asked %q, want %q", asked, p.asked)
				}
			}
			for _, right := range strings.Split(p.asked, ",") {
				if _, body, reached, _ := through(t, b, p.method, p.path, "admin", map[string]bool{right: true}); !reached {
					t.Errorf("with the right to %s: %q", right, body)
				}
			}
		})
	}
}

// through sends a request to the guarded routes and reports whether it got past the guard.
func through(t *testing.T, b *bed, method, path, token string,
	may map[string]bool,
) (code int, body string, reached bool, asked string) {
	t.Helper()
	var questions []string
	guard, err := auth.New(b.service.env.Config.Kubelet, b.service.rules, reviewer(t, may, &questions),
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	handler := guard.Filter(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	request := httptest.NewRequest(method, "http://n1"+path, nil)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer.Code, answer.Body.String(), reached, strings.Join(questions, ",")
}

// Every pattern that is served is in the table above.
func TestEveryPathIsInTheTable(t *testing.T) {
	b := newBed(t, "enableSystemLogQuery: true\n")
	mux := b.service.routes().(*http.ServeMux)
	served := map[string]bool{}
	for _, p := range everyPath {
		_, pattern := mux.Handler(httptest.NewRequest(p.method, "http://n1"+p.path, nil))
		served[pattern] = true
	}
	for _, want := range []string{
		"GET /healthz", "GET /pods", "GET /runningpods/{$}", "GET /configz", "GET /stats/summary", "GET /metrics",
		"GET /metrics/resource",
		"GET /metrics/cadvisor", "GET /metrics/probes", "GET /metrics/slis", "GET /logs/", "GET /debug/pprof/",
		"GET /containerLogs/{namespace}/{pod}/{container}",
		"POST /checkpoint/{namespace}/{pod}/{container}", "GET /exec/{namespace}/{pod}/{container}",
		"GET /exec/{namespace}/{pod}/{uid}/{container}",
		"GET /attach/{namespace}/{pod}/{container}", "GET /portForward/{namespace}/{pod}",
		"POST /run/{namespace}/{pod}/{container}",
		"GET /statusz", "GET /flagz", "/debug/flags/v", "GET /logs",
	} {
		if !served[want] {
			t.Errorf("%s isn't served, or isn't in the table", want)
		}
	}
}

func TestGetMayDoWhereItIsSwitchedOn(t *testing.T) {
	b := newBed(t, "")
	b.service.rules.GetMayDo = true
	if _, body, reached, asked := through(t, b, "GET", "/exec/ns/web/app", "admin",
		map[string]bool{"get proxy": true}); !reached || asked != "get proxy" {
		t.Errorf("asked %q, answered %q", asked, body)
	}
}

// What is served sees no credentials, which it might hand on to the runtime.
func TestCredentialsEndAtTheGuard(t *testing.T) {
	b := newBed(t, "")
	var asked []string
	guard, err := auth.New(b.service.env.Config.Kubelet, b.service.rules,
		reviewer(t, map[string]bool{"create proxy": true}, &asked), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"not reached"}}
	request := httptest.NewRequest("POST", "/exec/ns/web/app", nil)
	request.Header.Set("Authorization", "Bearer admin")
	guard.Filter(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
	})).ServeHTTP(httptest.NewRecorder(), request)
	if got := header.Get("Authorization"); got != "" {
		t.Errorf("the token is handed on: %q", got)
	}
}

// Without an API server nothing is open that wasn't asked to be.
func TestStandaloneIsClosed(t *testing.T) {
	for lines, want := range map[string]int{
		"":                                     http.StatusUnauthorized,
		"authorization: {mode: AlwaysAllow}\n": http.StatusUnauthorized,
		"authentication: {anonymous: {enabled: true}}\n":                                     http.StatusForbidden,
		"authentication: {webhook: {enabled: false}}\n":                                      http.StatusUnauthorized,
		"authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n": http.StatusOK,
	} {
		b := newBed(t, lines)
		guard, err := auth.New(b.service.env.Config.Kubelet, b.service.rules, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		answer := httptest.NewRecorder()
		guard.Filter(b.service.routes()).ServeHTTP(answer, httptest.NewRequest("GET", "/configz", nil))
		if answer.Code != want {
			t.Errorf("%q: %d, want %d", lines, answer.Code, want)
		}
	}
}
