package resource

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// What the kubelet counts, and shows as zero from its start, by policy and scope.
func TestMetricsOfAlignment(t *testing.T) {
	for _, c := range []struct {
		name          string
		policy, scope string
		static        bool
		do            func(m *metrics, p numa.Policy)
		want          []string // what isn't zero or has labels
	}{
		{name: "no policies", policy: numa.PolicyNone},
		{
			name: "a static CPU manager", policy: numa.PolicyNone, static: true,
			want: []string{
				"aligned container physical_cpu 0", "aligned container uncore_cache 0", "failed container physical_cpu 0",
			},
		},
		{
			name: "nothing is aligned under none", policy: numa.PolicyNone,
			do: func(m *metrics, p numa.Policy) {
				m.requested()
				m.alignment(p, true)
				m.refused(p)
			},
			want: []string{"requests 1"},
		},
		{
			name: "restricted guarantees nothing", policy: numa.PolicyRestricted, scope: "pod",
			do: func(m *metrics, p numa.Policy) {
				m.requested()
				m.alignment(p, false)
				m.refused(p)
			},
			want: []string{
				"requests 1", "errors 1", "aligned container numa_node 0", "aligned pod numa_node 0",
				"failed container numa_node 0", "failed pod numa_node 0",
			},
		},
		{
			name: "single-numa-node, by pod", policy: numa.PolicySingleNUMANode, scope: "pod",
			do: func(m *metrics, p numa.Policy) {
				m.alignment(p, true)
				m.alignment(p, true)
				m.alignment(p, false)
			},
			want: []string{
				"aligned container numa_node 0", "aligned pod numa_node 2", "failed container numa_node 0",
				"failed pod numa_node 1",
			},
		},
		{
			name: "single-numa-node, by container", policy: numa.PolicySingleNUMANode, scope: "container",
			do: func(m *metrics, p numa.Policy) { m.alignment(p, true) },
			want: []string{
				"aligned container numa_node 1", "aligned pod numa_node 0", "failed container numa_node 0",
				"failed pod numa_node 0",
			},
		},
		{
			name: "whole cores are for full-pcpus-only", policy: numa.PolicyNone, static: true,
			do: func(m *metrics, _ numa.Policy) {
				m.pinned(true, false, true)
				m.pinned(false, false, false)
			},
			want: []string{
				"aligned container physical_cpu 0", "aligned container uncore_cache 1", "failed container physical_cpu 0",
			},
		},
		{
			name: "full-pcpus-only", policy: numa.PolicyNone, static: true,
			do: func(m *metrics, _ numa.Policy) {
				m.pinned(true, true, false)
				m.pinned(false, true, false)
			},
			want: []string{
				"aligned container physical_cpu 1", "aligned container uncore_cache 0", "failed container physical_cpu 1",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			m, err := newMetrics(registry)
			if err != nil {
				t.Fatal(err)
			}
			p, err := numa.New(numa.Config{Policy: c.policy, Scope: c.scope, Nodes: []machine.Node{{ID: 0}, {ID: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			m.begin(p, c.static)
			if c.do != nil {
				c.do(m, p)
			}
			if got := counted(t, registry); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("counted %q, want %q", got, slices.Sorted(slices.Values(c.want)))
			}
		})
	}
}

// counted are the admissions, and all that is known of alignment, in order.
func counted(t *testing.T, registry *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	short := map[string]string{
		"kubelet_topology_manager_admission_requests_total":         "requests",
		"kubelet_topology_manager_admission_errors_total":           "errors",
		"kubelet_container_aligned_compute_resources_count":         "aligned",
		"kubelet_container_aligned_compute_resources_failure_count": "failed",
	}
	for _, family := range families {
		name, ok := short[family.GetName()]
		if !ok {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range metric.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			value := metric.GetCounter().GetValue()
			if len(labels) == 0 && value == 0 {
				continue
			}
			line := fmt.Sprintf("%s %s %s %v", name, labels["scope"], labels["boundary"], value)
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	slices.Sort(lines)
	return lines
}
