package server

import (
	"cmp"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/services/api/internal/cert"
)

// metrics are the daemon's, under the kubelet's names.
type metrics struct {
	registry   prometheus.Registerer
	requests   *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	inFlight   *prometheus.GaugeVec
	webSockets *prometheus.CounterVec
	checks     *prometheus.CounterVec
	healthy    *prometheus.GaugeVec
	slis       *prometheus.Registry
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	labels := []string{"method", "path", "server_type", "long_running"}
	m := &metrics{
		registry: r,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of the http requests received since the server started",
		}, labels),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration in seconds to serve http requests",
		}, labels),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of the inflight http requests",
		}, labels),
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total",
			Help: "Total number of WebSocket streaming requests (exec/attach/portforward).",
		}, []string{"subresource"}),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubernetes_healthchecks_total", Help: "The results of all health checks.",
		}, []string{"name", "type", "status"}),
		healthy: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubernetes_healthcheck", Help: "The result of the last health check: 1 for success.",
		}, []string{"name", "type"}),
		slis: prometheus.NewRegistry(),
	}
	return m, cmp.Or(r.Register(m.requests), r.Register(m.durations), r.Register(m.inFlight), r.Register(m.webSockets),
		m.slis.Register(m.checks), m.slis.Register(m.healthy))
}

// certificate registers how long the serving certificate lasts.
func (m *metrics) certificate(get getCertificate) error {
	return m.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubelet_certificate_manager_server_ttl_seconds",
		Help: "Seconds until the serving certificate expires, negative if it has; +Inf without one.",
	}, func() float64 {
		end, ok := cert.NotAfter(get)
		if !ok {
			return math.Inf(1)
		}
		return math.Trunc(time.Until(end).Seconds())
	}))
}

// checked notes the result of a health check.
func (m *metrics) checked(name string, err error) {
	status, value := "success", 1.0
	if err != nil {
		status, value = "error", 0
	}
	m.checks.WithLabelValues(name, "healthz", status).Inc()
	m.healthy.WithLabelValues(name, "healthz").Set(value)
}

// count counts and times the requests of a server.
func (m *metrics) count(serverType string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := bucket(r.URL.Path)
		labels := []string{method(r.Method), path, serverType, strconv.FormatBool(longRunning[path])}
		begin := time.Now()
		m.requests.WithLabelValues(labels...).Inc()
		m.inFlight.WithLabelValues(labels...).Inc()
		defer func() {
			m.inFlight.WithLabelValues(labels...).Dec()
			m.durations.WithLabelValues(labels...).Observe(time.Since(begin).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}

// buckets bound the values of the label path. longRunning are those whose requests last in the kubelet's words;
// unbounded are those whose requests or answers can.
var (
	buckets = map[string]bool{
		"healthz": true, "pods": true, "stats": true, "metrics": true, "metrics/cadvisor": true, "metrics/probes": true,
		"metrics/resource": true,
		"run":              true, "exec": true, "attach": true, "portForward": true, "containerLogs": true, "configz": true,
		"runningpods": true,
		"checkpoint":  true, "logs": true, "debug": true, "statusz": true, "flagz": true,
	}
	longRunning = map[string]bool{"exec": true, "attach": true, "portForward": true, "debug": true}
	unbounded   = map[string]bool{
		"exec": true, "attach": true, "portForward": true, "debug": true, "run": true, "checkpoint": true,
		"containerLogs": true, "logs": true,
	}
)

func lasts(r *http.Request) bool { return unbounded[bucket(r.URL.Path)] }

func bucket(path string) string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	root := parts[0]
	if root == "metrics" && len(parts) > 1 {
		root += "/" + parts[1]
	}
	if buckets[root] {
		return root
	}
	return "other"
}

func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions,
		http.MethodTrace, http.MethodConnect:
		return name
	}
	return "other"
}
