package resource

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/metrics"
	"kubelot.dev/services/resource/internal/numa"
)

// What the kubelet counts, and shows as zero from its start, by policy and scope.
func TestMetricsOfAlignment(t *testing.T) {
	for _, c := range []struct {
		name          string
		policy, scope string
		static        bool
		do            func(m *metrics.Metrics, p numa.Policy)
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
			do: func(m *metrics.Metrics, p numa.Policy) {
				m.Requested()
				m.Aligned(p, true)
				m.Refused(p)
			},
			want: []string{"requests 1"},
		},
		{
			name: "restricted guarantees nothing", policy: numa.PolicyRestricted, scope: "pod",
			do: func(m *metrics.Metrics, p numa.Policy) {
				m.Requested()
				m.Aligned(p, false)
				m.Refused(p)
			},
			want: []string{
				"requests 1", "errors 1", "aligned container numa_node 0", "aligned pod numa_node 0",
				"failed container numa_node 0", "failed pod numa_node 0",
			},
		},
		{
			name: "single-numa-node, by pod", policy: numa.PolicySingleNUMANode, scope: "pod",
			do: func(m *metrics.Metrics, p numa.Policy) {
				m.Aligned(p, true)
				m.Aligned(p, true)
				m.Aligned(p, false)
			},
			want: []string{
				"aligned container numa_node 0", "aligned pod numa_node 2", "failed container numa_node 0",
				"failed pod numa_node 1",
			},
		},
		{
			name: "single-numa-node, by container", policy: numa.PolicySingleNUMANode, scope: "container",
			do: func(m *metrics.Metrics, p numa.Policy) { m.Aligned(p, true) },
			want: []string{
				"aligned container numa_node 1", "aligned pod numa_node 0", "failed container numa_node 0",
				"failed pod numa_node 0",
			},
		},
		{
			name: "whole cores are for full-pcpus-only", policy: numa.PolicyNone, static: true,
			do: func(m *metrics.Metrics, _ numa.Policy) {
				m.Pinned(true, false, true)
				m.Pinned(false, false, false)
			},
			want: []string{
				"aligned container physical_cpu 0", "aligned container uncore_cache 1", "failed container physical_cpu 0",
			},
		},
		{
			name: "full-pcpus-only", policy: numa.PolicyNone, static: true,
			do: func(m *metrics.Metrics, _ numa.Policy) {
				m.Pinned(true, true, false)
				m.Pinned(false, true, false)
			},
			want: []string{
				"aligned container physical_cpu 1", "aligned container uncore_cache 0", "failed container physical_cpu 1",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			m, err := metrics.New(registry)
			if err != nil {
				t.Fatal(err)
			}
			p, err := numa.New(numa.Config{Policy: c.policy, Scope: c.scope, Nodes: []machine.Node{{ID: 0}, {ID: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			m.Begin(p, c.static)
			if c.do != nil {
				c.do(m, p)
			}
			if got := counted(t, registry); !slices.Equal(got, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("counted %q, want %q", got, slices.Sorted(slices.Values(c.want)))
			}
		})
	}
}

// A pod counts as aligned once it has all that it asked for, not before its plugin has refused it.
func TestARefusedPodIsNotAligned(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.two("pod")
		b.on(0)
		b.fail = errors.New("it is broken")
		b.come(asks("a", "cpu=2 gpu=1"))
		want := []string{"aligned container uncore_cache 1", "errors 1", "requests 1"}
		if got := counted(t, b.registry); !slices.Equal(got, want) {
			t.Errorf("after a refusal it has counted %q, want %q", got, want)
		}
		b.mu.Lock()
		b.fail = nil
		b.mu.Unlock()
		b.come(asks("b", "cpu=2 gpu=1", "cpu=1"))
		b.says("b", "allocated")
		want = []string{"aligned container uncore_cache 3", "aligned pod numa_node 1", "errors 1", "requests 2"}
		if got := counted(t, b.registry); !slices.Equal(got, want) {
			t.Errorf("counted %q, want %q", got, want)
		}
	})
}

// A pod whose plugin is away is tried again and again. It counts once, when it has what it asks for or is refused.
func TestAPodThatIsTriedAgainCountsOnce(t *testing.T) {
	const pinned, took = "kubelet_cpu_manager_pinning_requests_total", "kubelet_topology_manager_admission_duration_ms"
	for name, c := range map[string]struct {
		comesBack bool
		want      []string
	}{
		"the plugin comes back": {true, []string{
			"aligned container numa_node 1", "aligned container uncore_cache 1", "requests 1",
		}},
		"the plugin stays away": {false, []string{"aligned container uncore_cache 1", "errors 1", "requests 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.two("container")
				b.on(0)
				b.fail = deviceplugin.ErrAway
				b.come(asks("a", "cpu=2 gpu=1"))
				time.Sleep(4 * tryAgain)
				if got := unlabelled(t, b.registry); got[pinned] != 0 || got[took] != 0 {
					t.Errorf("before its outcome is known it has counted %v", got)
				}
				if c.comesBack {
					b.mu.Lock()
					b.fail = nil
					b.mu.Unlock()
				}
				time.Sleep(devices.Grace)
				if got := counted(t, b.registry); !slices.Equal(got, c.want) {
					t.Errorf("counted %q, want %q", got, c.want)
				}
				if got := unlabelled(t, b.registry); got[pinned] != 1 || got[took] != 1 {
					t.Errorf("counted %v", got)
				}
			})
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

// What is counted of CPUs of one's own, and of memory, under the kubelet's names.
func TestWhatPodsHaveIsCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		two := map[corev1.ResourceName]string{"cpu": "2", "memory": "1Mi"}
		pod := b.wants("a", two)
		b.wants("b", two) // of four CPUs one is left, and one is the system's
		b.service.holdings.metrics.Remembered(true)
		b.service.holdings.metrics.Remembered(false)
		want := map[string]float64{
			"kubelet_cpu_manager_pinning_requests_total":         2,
			"kubelet_cpu_manager_pinning_errors_total":           1,
			"kubelet_cpu_manager_shared_pool_size_millicores":    1000,
			"kubelet_cpu_manager_exclusive_cpu_allocation_count": 2,
			"kubelet_memory_manager_pinning_requests_total":      2,
			"kubelet_memory_manager_pinning_errors_total":        1,
			"kubelet_topology_manager_admission_requests_total":  2,
			"kubelet_topology_manager_admission_errors_total":    0,
			"kubelet_topology_manager_admission_duration_ms":     2,
		}
		if got := unlabelled(t, b.registry); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
		if err := b.pods.Set("c", topic.Pod{Pod: asks("c", ""), Lifecycle: topic.Syncing}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		// What podsync refuses counts here, too, since the kubelet asks for it first. Nobody gets it.
		large := topic.Pod{
			Pod: asks("d", "cpu=5"), Lifecycle: topic.Terminating, Allocates: true, Refused: "OutOfcpu",
		}
		for range 2 {
			if err := b.pods.Set("d", large); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			large.Lifecycle = topic.Terminated
		}
		b.state(pod, topic.Terminated)
		want["kubelet_cpu_manager_pinning_requests_total"] = 3
		want["kubelet_cpu_manager_pinning_errors_total"] = 2
		// One that asks for nothing counts as well.
		want["kubelet_topology_manager_admission_requests_total"] = 4
		want["kubelet_topology_manager_admission_duration_ms"] = 4
		want["kubelet_cpu_manager_shared_pool_size_millicores"] = 3000
		want["kubelet_cpu_manager_exclusive_cpu_allocation_count"] = 0
		if got := unlabelled(t, b.registry); !maps.Equal(got, want) {
			t.Errorf("counted %v, want %v", got, want)
		}
	})
}

// A pod that lacks CPUs and devices is told of the devices, and counts for nobody's CPUs, as with the kubelet.
func TestDevicesAreAskedFirst(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.static()
		b.lists(gpu, "g0")
		b.wants("a", map[corev1.ResourceName]string{"cpu": "5", "memory": "1Mi", gpu: "2"})
		if a := b.allocation("a"); a.Reason != reasonUnexpected || !strings.Contains(a.Message, gpu) {
			t.Errorf("the pod is told %+v, want that it lacks devices", a)
		}
		if n := unlabelled(t, b.registry)["kubelet_cpu_manager_pinning_requests_total"]; n != 0 {
			t.Errorf("%v requests for CPUs, want none", n)
		}
	})
}

// unlabelled are the values of metrics without labels, by their names; of a histogram it is how often it was measured.
func unlabelled(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 0 {
				values[family.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return values
}
