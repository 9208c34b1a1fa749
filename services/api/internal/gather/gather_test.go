package gather

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve is a daemon's socket with this page.
func serve(t *testing.T, dir, daemon, page string) (stop func()) {
	t.Helper()
	return serveFunc(t, dir, daemon, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) })
}

func serveFunc(t *testing.T, dir, daemon string, handle http.HandlerFunc) (stop func()) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "metrics"), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "metrics", daemon+".sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handle}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	return func() {
		server.Close()
		<-done
	}
}

func scrape(t *testing.T, g *Gatherer) string {
	t.Helper()
	answer := httptest.NewRecorder()
	g.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("status %d", answer.Code)
	}
	return answer.Body.String()
}

// patient is a gatherer that leaves out no daemon because the machine is busy.
func patient(dir string, r prometheus.Registerer, local prometheus.Gatherer, exemplars bool) *Gatherer {
	g := New(dir, r, local, exemplars)
	g.patience = time.Minute
	return g
}

const (
	one = "# TYPE go_goroutines gauge\ngo_goroutines 3\n# TYPE kubelet_own counter\nkubelet_own{a=\"b\"} 1\n" +
		"# TYPE kubelot_build_info gauge\nkubelot_build_info{daemon=\"one\"} 1\n# TYPE lat " +
		"histogram\nlat_bucket{le=\"+Inf\"} 2\nlat_sum 3\nlat_count 2\n"
	two = "# TYPE go_goroutines gauge\ngo_goroutines 5\n# TYPE kubelot_build_info " +
		"gauge\nkubelot_build_info{daemon=\"two\"} 1\n"
)

func TestGather(t *testing.T) {
	dir := t.TempDir()
	stopOne, stopTwo := serve(t, dir, "one", one), serve(t, dir, "two", two)
	defer stopOne()
	registry, local := prometheus.NewRegistry(), prometheus.NewRegistry()
	requests := prometheus.NewCounter(prometheus.CounterOpts{Name: "rest_client_requests_total"})
	if err := local.Register(requests); err != nil {
		t.Fatal(err)
	}
	g := patient(dir, registry, local, false)
	page := scrape(t, g)
	for _, want := range []string{
		`go_goroutines{daemon="one"} 3`, `go_goroutines{daemon="two"} 5`, `kubelet_own{a="b"} 1`,
		`kubelot_build_info{daemon="one"} 1`,
		`kubelot_build_info{daemon="two"} 1`, `lat_count 2`, `rest_client_requests_total 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	stopTwo()
	page = scrape(t, g)
	if !strings.Contains(page, `go_goroutines{daemon="one"} 3`) || strings.Contains(page, `go_goroutines{daemon="two"}`) {
		t.Errorf("with one of two away its series changed their labels:\n%s", page)
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	for _, m := range families[0].Metric {
		if up := m.GetGauge().GetValue() == 1; up != (m.Label[0].GetValue() == "one") {
			t.Errorf("up of %s: %v", m.Label[0].GetValue(), up)
		}
	}
}

// A series says once which daemon it is from, even where others of its family don't.
func TestSeriesThatSayTheirDaemon(t *testing.T) {
	dir := t.TempDir()
	const head = "# TYPE x gauge\n"
	defer serve(t, dir, "one", head+"x{daemon=\"other\"} 1\nx 2\n")()
	defer serve(t, dir, "two", head+"x 3\n")()
	page := scrape(t, patient(dir, prometheus.NewRegistry(), nil, false))
	for _, want := range []string{`x{daemon="other"} 1`, `x{daemon="one"} 2`, `x{daemon="two"} 3`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

// A daemon that hangs or talks nonsense is left out, and holds up nobody for long.
func TestGatherWithoutTheSick(t *testing.T) {
	dir := t.TempDir()
	release := make(chan struct{})
	defer serve(t, dir, "one", one)()
	defer serve(t, dir, "nonsense", "}{ 5\n")()
	defer serveFunc(t, dir, "failing", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})()
	defer serveFunc(t, dir, "hanging", func(http.ResponseWriter, *http.Request) { <-release })()
	defer close(release)
	// One that hangs is never released, so that an answer is proof enough. On a busy machine the well may be late too, for
	// once.
	g := New(dir, prometheus.NewRegistry(), nil, false)
	page := ""
	for end := time.Now().Add(time.Minute); !strings.Contains(page, "go_goroutines 3\n"); page = scrape(t, g) {
		if time.Now().After(end) {
			t.Fatalf("page:\n%s", page)
		}
	}
}

// A client that says how long it waits has the page before, with what has answered by then.
func TestPageInTimeForItsReader(t *testing.T) {
	dir := t.TempDir()
	release := make(chan struct{})
	defer serveFunc(t, dir, "hanging", func(http.ResponseWriter, *http.Request) { <-release })()
	defer close(release)
	g := New(dir, prometheus.NewRegistry(), nil, false)
	g.patience = 24 * time.Hour // without the header the test would not end
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "0.1")
	g.ServeHTTP(httptest.NewRecorder(), request)
	for told, want := range map[string]time.Duration{
		"": g.patience, "soon": g.patience, "NaN": g.patience, "0": g.patience, "-3": g.patience,
		"5": 4 * time.Second, "10": 8 * time.Second, "1e300": longest, "+Inf": longest,
	} {
		request.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", told)
		if got := g.patienceFor(request.Header); got != want {
			t.Errorf("a client that waits for %q s: the daemons have %v, not %v", told, got, want)
		}
	}
}

// A client that doesn't wait says nothing of a daemon to others: what was known of it stays.
func TestImpatientClientsTellNothing(t *testing.T) {
	dir := t.TempDir()
	var hangs atomic.Bool
	release := make(chan struct{})
	defer serveFunc(t, dir, "one", func(w http.ResponseWriter, _ *http.Request) {
		if hangs.Load() {
			<-release
		}
	})()
	defer close(release)
	g := New(dir, prometheus.NewRegistry(), nil, false)
	g.patience = 24 * time.Hour
	up := func(what string, want float64) {
		t.Helper()
		if got := testutil.ToFloat64(g.up.WithLabelValues("one")); got != want {
			t.Errorf("%s: up is %v, want %v", what, got, want)
		}
	}
	scrape(t, g)
	up("one that answers", 1)
	hangs.Store(true)
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", "0.1")
	g.ServeHTTP(httptest.NewRecorder(), request)
	up("after a client that waits for little", 1)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil).WithContext(gone))
	up("after a client that went away", 1)
	g.patience = 100 * time.Millisecond
	scrape(t, g)
	up("one that hangs", 0)
}
