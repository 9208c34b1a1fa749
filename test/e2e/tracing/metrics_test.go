package tracing

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// metrics is the page of all daemons, as Prometheus asks for it; traceparent is the span of the request, or empty.
func metrics(t *testing.T, ns *kit.Namespace, traceparent string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	ns.Kubectl("create", "serviceaccount", "scraper")
	credential := ns.Token("scraper")
	var page []byte
	kit.Eventually(t, "the metrics", func() error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			fmt.Sprintf("https://%s:%d/metrics", bed.Bed.Gateway, bed.Node.Port), nil)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+credential)
		request.Header.Set("Accept", "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2")
		if traceparent != "" {
			request.Header.Set("Traceparent", traceparent)
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if page, err = io.ReadAll(answer.Body); err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", answer.Status, page)
		}
		return err
	})
	return string(page)
}

// The metrics lead to traces that the collector has. The request that asks for them is a span of its client's trace.
func TestExemplars(t *testing.T) {
	ns := bed.Namespace(t)
	ns.Apply(pod("web", plain))
	p := ns.Wait("web", "ready", kit.Ready)
	kit.Eventually(t, "the pod's start", func() error {
		_, err := one(collected.of(string(p.UID)), "pod", "")
		return err
	})
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	page := metrics(t, ns, "00-"+trace+"-"+parent+"-01")
	traces := map[string]bool{}
	for _, s := range collected.all() {
		traces[s.trace] = true
	}
	exemplar := regexp.MustCompile(`(?m)^(kubelet_[a-z_]+)_bucket\{.* # \{trace_id="([0-9a-f]{32})"\} `)
	found := map[string]bool{}
	for _, m := range exemplar.FindAllStringSubmatch(page, -1) {
		found[m[1]] = true
		if !traces[m[2]] {
			t.Errorf("an exemplar of %s leads to the trace %s, which the collector doesn't have", m[1], m[2])
		}
	}
	for _, name := range []string{
		"kubelet_pod_start_sli_duration_seconds", "kubelet_pod_start_total_duration_seconds",
		"kubelet_pod_start_duration_seconds", "kubelet_pod_worker_start_duration_seconds",
		"kubelet_pod_worker_duration_seconds", "kubelet_run_podsandbox_duration_seconds",
	} {
		if !found[name] {
			t.Errorf("%s has no exemplar", name)
		}
	}
	if !strings.HasSuffix(page, "# EOF\n") || !strings.Contains(page, `kubelot_trace_spans_total{result="sent"}`) {
		t.Errorf("the page isn't whole:\n%s", page)
	}
	kit.Eventually(t, "the request's span", func() error {
		for _, s := range collected.of(trace) {
			if s.parent == parent && s.name == "GET /metrics" {
				return nil
			}
		}
		return fmt.Errorf("the trace has\n%s", list(collected.of(trace)))
	})
}
