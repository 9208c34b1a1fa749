package server

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"kubelot.dev/daemon"
)

func TestZPages(t *testing.T) {
	for _, lines := range []string{"", "enableDebuggingHandlers: false\n"} {
		b := newBed(t, lines)
		b.service.env.Flags = map[string]string{"node-ip": "192.0.2.1"}
		b.wants("GET", "/statusz", http.StatusOK, "kubelet statusz")
		b.wants("GET", "/statusz", http.StatusOK, "1.36")
		b.wants("GET", "/flagz", http.StatusOK, "192.0.2.1")
		b.wants("POST", "/flagz", http.StatusMethodNotAllowed, "")
	}
	b := newBed(t, "")
	request := httptest.NewRequest("GET", "/statusz", nil)
	request.Header.Set("Accept", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz")
	answer := httptest.NewRecorder()
	b.service.routes().ServeHTTP(answer, request)
	if text := answer.Body.String(); answer.Code != http.StatusOK || !strings.Contains(text, `"kind":"Statusz"`) ||
		!strings.Contains(text, `"/flagz"`) {
		t.Errorf("%d %s", answer.Code, text)
	}
}

// What /statusz tells of is served.
func TestStatuszTellsWhatIsServed(t *testing.T) {
	mux := newBed(t, "").service.routes().(*http.ServeMux)
	for _, path := range paths {
		served := false
		for _, tail := range []string{"", "x", "ns/web", "ns/web/app"} {
			for _, method := range []string{"GET", "POST"} {
				_, pattern := mux.Handler(httptest.NewRequest(method, "http://n1"+path+tail, nil))
				served = served || pattern != ""
			}
		}
		if !served {
			t.Errorf("%s isn't served", path)
		}
	}
}

// loudness is another daemon's socket that takes a verbosity.
type loudness struct {
	mu   sync.Mutex
	told []string
}

func (l *loudness) last() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.told, " ")
}

func (b *bed) loud(name string, code int) *loudness {
	b.t.Helper()
	l := &loudness{}
	path := filepath.Join(b.dir, "metrics", name+".sock")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		b.t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(b.t.Context(), "unix", path)
	if err != nil {
		b.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT "+daemon.VerbosityPath, func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, 10)
		n, _ := r.Body.Read(text)
		l.mu.Lock()
		l.told = append(l.told, string(text[:n]))
		l.mu.Unlock()
		w.WriteHeader(code)
	})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	b.t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return l
}

func TestVerbosityIsTheCrews(t *testing.T) {
	before := verbosityPatience
	verbosityPatience = time.Minute
	t.Cleanup(func() { verbosityPatience = before })
	b := newBed(t, "")
	gc, pleg := b.loud("gc", http.StatusOK), b.loud("pleg", http.StatusOK)
	put := func(text string) (int, string) {
		answer := httptest.NewRecorder()
		b.service.routes().ServeHTTP(answer, httptest.NewRequest("PUT", "/debug/flags/v", strings.NewReader(text)))
		return answer.Code, answer.Body.String()
	}
	if code, text := put("5"); code != http.StatusOK || text != "successfully set klog.logging.verbosity to 5" ||
		gc.last() != "5" || pleg.last() != "5" {
		t.Errorf("%d %q; gc was told %q, pleg %q", code, text, gc.last(), pleg.last())
	}
	for _, bad := range []string{"", "x", "-1", strings.Repeat("1", 100)} {
		if code, _ := put(bad); code != http.StatusBadRequest {
			t.Errorf("PUT %q: %d, want %d", bad, code, http.StatusBadRequest)
		}
	}
	b.wants("GET", "/debug/flags/v", http.StatusNotAcceptable, "unsupported http method")
	b.loud("volume", http.StatusInternalServerError)
	if code, text := put("2"); code != http.StatusServiceUnavailable || !strings.Contains(text, "kubelot-volume") ||
		gc.last() != "5 2" {
		t.Errorf("%d %q; gc was told %q; want one that names kubelot-volume, and gc to be told all the same",
			code, text, gc.last())
	}
	off := newBed(t, "enableDebugFlagsHandler: false\n")
	off.wants("PUT", "/debug/flags/v", http.StatusMethodNotAllowed, "flags endpoint is disabled.")
}
