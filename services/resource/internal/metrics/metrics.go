// Package metrics are the kubelet's metrics about CPU, memory and topology manager.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/numa"
)

// Boundaries in which what a container has for itself lies as a whole.
const (
	ofNUMANode = "numa_node"
	ofCore     = "physical_cpu"
	ofCache    = "uncore_cache"
)

// What lies within them.
const (
	scopeContainer = "container"
	scopePod       = "pod"
)

// Metrics count what pods ask for and get. Nil ones count nothing.
type Metrics struct {
	cpuRequests, cpuErrors, memoryRequests, memoryErrors, admissions, admissionErrors prometheus.Counter
	shared, exclusive                                                                 prometheus.Gauge
	perNode                                                                           *prometheus.GaugeVec
	took                                                                              prometheus.Histogram
	aligned, misaligned                                                               *prometheus.CounterVec
}

// New makes the metrics and registers them.
func New(r prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	alignment := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"scope", "boundary"})
	}
	m := &Metrics{
		cpuRequests: counter("kubelet_cpu_manager_pinning_requests_total", "Containers that asked for CPUs of their own."),
		cpuErrors:   counter("kubelet_cpu_manager_pinning_errors_total", "Containers that could not get them."),
		memoryRequests: counter("kubelet_memory_manager_pinning_requests_total",
			"Containers that asked for memory of their own."),
		memoryErrors:    counter("kubelet_memory_manager_pinning_errors_total", "Containers that could not get it."),
		admissions:      counter("kubelet_topology_manager_admission_requests_total", "Pods that came to the node."),
		admissionErrors: counter("kubelet_topology_manager_admission_errors_total", "Pods that could not be aligned."),
		shared: gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"CPUs that nobody has alone, without the reserved ones, in thousandths."),
		exclusive: gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that containers have alone."),
		perNode: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_cpu_manager_allocation_per_numa", Help: "CPUs that containers have alone, by NUMA node.",
		}, []string{"numa_node"}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms", Help: "How long it took to align a pod, in milliseconds.",
			Buckets: prometheus.ExponentialBuckets(.05, 2, 15),
		}),
		aligned: alignment("kubelet_container_aligned_compute_resources_count",
			"Containers and pods that got all from within a boundary."),
		misaligned: alignment("kubelet_container_aligned_compute_resources_failure_count",
			"Containers and pods that could not get all from within a boundary."),
	}
	return m, daemon.RegisterMetrics(r, "CPUs and memory", m.cpuRequests, m.cpuErrors, m.memoryRequests, m.memoryErrors,
		m.admissions, m.admissionErrors, m.shared, m.exclusive, m.perNode, m.took, m.aligned, m.misaligned)
}

// Begin shows zeros for what may be counted under the configuration, as the kubelet does.
func (m *Metrics) Begin(p numa.Policy, static bool) {
	if p.Name() != numa.PolicyNone {
		for _, scope := range []string{scopeContainer, scopePod} {
			m.aligned.WithLabelValues(scope, ofNUMANode)
			m.misaligned.WithLabelValues(scope, ofNUMANode)
		}
	}
	if static {
		m.aligned.WithLabelValues(scopeContainer, ofCore)
		m.misaligned.WithLabelValues(scopeContainer, ofCore)
		m.aligned.WithLabelValues(scopeContainer, ofCache)
	}
}

// Requested counts a pod that came, whether it asks for something or not, as the kubelet does.
func (m *Metrics) Requested() {
	if m != nil {
		m.admissions.Inc()
	}
}

// Refused counts a pod that couldn't get what it asked for. Without a policy nothing is aligned, and nothing fails.
func (m *Metrics) Refused(p numa.Policy) {
	if m != nil && p.Name() != numa.PolicyNone {
		m.admissionErrors.Inc()
	}
}

// Aligned counts the pod or container that has come from one NUMA node or couldn't, where the policy guarantees it.
func (m *Metrics) Aligned(p numa.Policy, ok bool) {
	if m == nil || !p.Aligns() {
		return
	}
	scope := scopeContainer
	if p.PerPod() {
		scope = scopePod
	}
	if ok {
		m.aligned.WithLabelValues(scope, ofNUMANode).Inc()
	} else {
		m.misaligned.WithLabelValues(scope, ofNUMANode).Inc()
	}
}

// Took counts how long it took to give a pod what it asked for.
func (m *Metrics) Took(took time.Duration) {
	if m != nil {
		m.took.Observe(float64(took) / float64(time.Millisecond))
	}
}

// Pinned counts a container that has asked for CPUs of its own. Whole cores count where containers get nothing else
// (full-pcpus-only).
func (m *Metrics) Pinned(ok, wholeCores, oneCache bool) {
	if m == nil {
		return
	}
	m.cpuRequests.Inc()
	if !ok {
		m.cpuErrors.Inc()
	}
	switch {
	case wholeCores && ok:
		m.aligned.WithLabelValues(scopeContainer, ofCore).Inc()
	case wholeCores:
		m.misaligned.WithLabelValues(scopeContainer, ofCore).Inc()
	}
	if ok && oneCache {
		m.aligned.WithLabelValues(scopeContainer, ofCache).Inc()
	}
}

// Remembered counts a container that has asked for memory of its own.
func (m *Metrics) Remembered(ok bool) {
	if m == nil {
		return
	}
	m.memoryRequests.Inc()
	if !ok {
		m.memoryErrors.Inc()
	}
}

// See shows who has which CPUs.
func (m *Metrics) See(s *cpus.State) {
	if m == nil {
		return
	}
	m.shared.Set(float64(s.Available().Size()) * 1000)
	m.perNode.Reset()
	all := 0
	for node, n := range s.PerNode() {
		m.perNode.WithLabelValues(strconv.Itoa(node)).Set(float64(n))
		all += n
	}
	m.exclusive.Set(float64(all))
}
