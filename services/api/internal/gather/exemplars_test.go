package gather

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	openMetrics = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"
	exemplar    = `# {trace_id="4f7c1a520c5e4a6e9d0e2f1f5b1c7a11"} 0.2`
)

// measured is a daemon's registry with a histogram that has an exemplar, and a counter of a name that isn't
// OpenMetrics'.
func measured(t *testing.T) http.HandlerFunc {
	t.Helper()
	r := prometheus.NewRegistry()
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "took", Help: "h", Buckets: []float64{0.1, 1}})
	ended := prometheus.NewCounter(prometheus.CounterOpts{Name: "kubelet_preemptions", Help: "h"})
	begun := prometheus.NewCounter(prometheus.CounterOpts{Name: "begun_total", Help: "h"})
	r.MustRegister(took, ended, begun)
	took.Observe(0.05)
	if with, ok := took.(prometheus.ExemplarObserver); ok {
		with.ObserveWithExemplar(0.2, prometheus.Labels{"trace_id": "4f7c1a520c5e4a6e9d0e2f1f5b1c7a11"})
	}
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP
}

func scrapeAs(t *testing.T, g *Gatherer, accept string) (page, form string) {
	t.Helper()
	answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	g.ServeHTTP(answer, request)
	return answer.Body.String(), answer.Header().Get("Content-Type")
}

// Exemplars reach those that ask for OpenMetrics, from daemons that have them next to others; no name changes.
func TestExemplars(t *testing.T) {
	dir := t.TempDir()
	defer serveFunc(t, dir, "podsync", measured(t))()
	defer serve(t, dir, "one", one)()
	g := patient(dir, prometheus.NewRegistry(), nil, true)
	page, form := scrapeAs(t, g, openMetrics)
	if !strings.HasPrefix(form, "application/openmetrics-text") {
		t.Errorf("the page is %q", form)
	}
	for _, want := range []string{
		`took_bucket{le="1.0"} 2 ` + exemplar, `took_bucket{le="+Inf"} 2`, "took_count 2", "kubelet_preemptions 0.0",
		"# TYPE kubelet_preemptions unknown", "begun_total 0.0", "# TYPE begun counter", "lat_count 2", "# EOF",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	if _, form = scrapeAs(t, g, "*/*"); !strings.HasPrefix(form, "text/plain") {
		t.Errorf("who asks for nothing gets %q", form)
	}
}

// Without exemplars, and without OpenMetrics, the page is the same as ever.
func TestWithoutExemplars(t *testing.T) {
	dir := t.TempDir()
	defer serveFunc(t, dir, "podsync", measured(t))()
	defer serve(t, dir, "one", one)()
	off, on := patient(dir, prometheus.NewRegistry(), nil, false), patient(dir, prometheus.NewRegistry(), nil, true)
	before, _ := scrapeAs(t, off, "")
	for name, got := range map[string]func() (string, string){
		"off and OpenMetrics": func() (string, string) { return scrapeAs(t, off, openMetrics) },
		"on and text":         func() (string, string) { return scrapeAs(t, on, "text/plain") },
	} {
		if page, form := got(); page != before || !strings.HasPrefix(form, "text/plain") {
			t.Errorf("%s: the page is %q, and was:\n%s\nis:\n%s", name, form, before, page)
		}
	}
}
