package stats

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/cri/cgroup/cgrouptest"
)

type scraped map[string][]sample

type sample struct {
	labels map[string]string
	value  float64
}

func (f scraped) value(name, label, want string) float64 {
	for _, s := range f[name] {
		if s.labels[label] == want {
			return s.value
		}
	}
	return -1
}

// metrics reads a page with Prometheus' own parser.
func (n *node) metrics(page string) scraped {
	n.t.Helper()
	w := httptest.NewRecorder()
	n.pages.ServeHTTP(w, httptest.NewRequestWithContext(n.t.Context(), http.MethodGet, page, nil))
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		n.t.Fatalf("%s: %v", page, err)
	}
	all := scraped{}
	for name, family := range parsed {
		for _, m := range family.GetMetric() {
			s := sample{labels: map[string]string{}, value: m.GetGauge().GetValue() + m.GetCounter().GetValue()}
			for _, pair := range m.GetLabel() {
				s.labels[pair.GetName()] = pair.GetValue()
			}
			all[name] = append(all[name], s)
		}
	}
	return all
}

func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V2, "systemd")
		defer n.stop()
		resource := n.metrics(pageResource)
		if resource.value("resource_scrape_error", "", "") != 0 || resource.value("container_memory_working_set_bytes",
			"container", "app") != 802816 || resource.value("pod_cpu_usage_seconds_total", "pod", "pod") <= 0 {
			t.Errorf("resource metrics %v", resource)
		}
		all := n.metrics(pageCadvisor)
		for name, want := range map[string]float64{
			"container_memory_usage_bytes": 5713920, "container_memory_rss": 110592,
			"container_spec_memory_limit_bytes": 64 << 20, "container_cpu_cfs_throttled_periods_total": 3,
			"container_processes": 2, "container_pressure_cpu_waiting_seconds_total": .001234, "container_oom_events_total": 1,
			"container_memory_swap": 4096,
		} {
			if got := all.value(name, "container", "app"); got != want {
				t.Errorf("%s of the container is %v, want %v", name, got, want)
			}
		}
		if got := all.value("container_spec_memory_limit_bytes", "id", "/"); got != 1<<30 {
			t.Errorf("the node's memory limit is %v, want what the machine has", got)
		}
		if all.value("machine_cpu_cores", "", "") != 2 || all.value("container_fs_limit_bytes", "id", "/") <= 0 ||
			all.value("container_cpu_usage_seconds_total", "cpu", "total") <= 0 {
			t.Error("the node's metrics are missing")
		}
		w := httptest.NewRecorder()
		n.pages.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, pageSummary, nil))
		var s statsapi.Summary
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || len(s.Pods) != 1 {
			t.Errorf("summary page: %v, %+v", err, s)
		}
	})
}
