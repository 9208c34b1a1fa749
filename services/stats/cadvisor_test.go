package stats

import (
	"bytes"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup"
)

// No series is there twice, whatever the cgroups and devices are, and containers began when the runtime says.
func TestNoSeriesTwice(t *testing.T) {
	at := func(path string) reading {
		r := reading{path: path}
		r.At, r.Created = time.Unix(1000, 0), time.Unix(999, 0)
		r.IO = []cgroup.DeviceIO{{Major: 7, Minor: 1, Reads: 1}, {Major: 7, Minor: 2, Reads: 2}}
		return r
	}
	u := newUsage()
	u.node = at("/")
	u.system = map[string]reading{"kubelet": at("/system.slice"), "misc": at("/system.slice"), "runtime": at("/")}
	u.pods["u1"] = podUsage{reading: at("/kubepods/podu1"), containers: map[string]reading{
		"c1": at("/kubepods/podu1/c1"),
		"s1": at("/kubepods/podu1/s1"),
	}}
	in := &metricsInput{usage: u, view: view{pods: []podView{{
		ref: topic.Ref{Namespace: "ns", Name: "pod", UID: "u1"}, sandbox: "s1", created: time.Unix(100, 0),
		containers: []containerView{{id: "c1", name: "app", created: time.Unix(200, 0), running: true}},
	}}}}
	var page bytes.Buffer
	if err := writeCadvisor(&page, in); err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	starts := map[float64]int{}
	for name, family := range families {
		seen := map[string]bool{}
		for _, m := range family.GetMetric() {
			series := ""
			for _, l := range m.GetLabel() {
				series += l.GetName() + "=" + l.GetValue() + ","
			}
			if seen[series] {
				t.Errorf("%s{%s} is there twice", name, series)
			}
			seen[series] = true
			if name == "container_start_time_seconds" {
				starts[m.GetGauge().GetValue()]++
			}
		}
	}
	if starts[100] != 2 || starts[200] != 1 || starts[999] != 2 {
		t.Errorf("the cgroups began at %v", starts)
	}
}
