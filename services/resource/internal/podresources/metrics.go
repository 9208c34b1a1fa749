package podresources

import (
	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// The API's versions, as the metrics' label has them.
const (
	versionV1    = "v1"
	versionAlpha = "v1alpha1"
)

// Metrics are the kubelet's about the API, each by the API's version.
type Metrics struct {
	requests               *prometheus.CounterVec
	list, get, allocatable method
}

// method are the metrics of one of the API's calls.
type method struct{ requests, errors *prometheus.CounterVec }

// NewMetrics registers the metrics, once for a process.
func NewMetrics(r prometheus.Registerer) (Metrics, error) {
	m := Metrics{
		requests: counter("requests_total", "Requests of the PodResources API"),
		list:     newMethod("list", "List"), get: newMethod("get", "Get"),
		allocatable: newMethod("get_allocatable", "GetAllocatableResources"),
	}
	return m, daemon.RegisterMetrics(r, "the PodResources API", m.requests, m.list.requests, m.list.errors,
		m.get.requests, m.get.errors, m.allocatable.requests, m.allocatable.errors)
}

func newMethod(suffix, call string) method {
	return method{
		requests: counter("requests_"+suffix, "Calls of "+call+" of the PodResources API"),
		errors:   counter("errors_"+suffix, "Calls of "+call+" of the PodResources API that failed"),
	}
}

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kubelet_pod_resources_endpoint_" + name, Help: help + ", by the version of the API.",
	}, []string{"server_api_version"})
}

// count counts a call that has been answered or has failed.
func (m Metrics) count(version string, of method, err error) {
	m.requests.WithLabelValues(version).Inc()
	of.requests.WithLabelValues(version).Inc()
	if err != nil {
		of.errors.WithLabelValues(version).Inc()
	}
}
