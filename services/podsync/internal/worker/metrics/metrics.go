package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

// Metrics holds podsync's metrics, a part for each package that records them. Its methods may be called from any
// goroutine.
type Metrics struct {
	*podMetrics
	*actionMetrics
	*imageMetrics
	*cgroupMetrics
	*startMetrics
}

// New makes the metrics and registers them. What is measured of a traced pod leads to its trace.
func New(r prometheus.Registerer, traced topic.Sampling) (*Metrics, error) {
	f := &factory{registry: r, exemplars: exemplars{traced}}
	m := &Metrics{newPodMetrics(f), newActionMetrics(f), newImageMetrics(f), newCgroupMetrics(f), newStartMetrics(f)}
	if err := errors.Join(f.errs...); err != nil {
		return nil, fmt.Errorf("register the metrics of podsync: %w", err)
	}
	return m, nil
}

// WorkerStarted records a pod that got its worker; firstSeen is when a source first had it.
func (m *Metrics) WorkerStarted(pod *corev1.Pod, firstSeen time.Time) {
	if !firstSeen.IsZero() {
		m.startMetrics.observe(m.startMetrics.worker, pod.UID, seconds(firstSeen))
	}
	m.podMetrics.containers.WithLabelValues().Observe(float64(len(pod.Spec.Containers)))
}

// Pulled records an image that was pulled for the pod since it asked for it.
func (m *Metrics) Pulled(pod *corev1.Pod, asked time.Time, size uint64) {
	now := time.Now()
	m.imageMetrics.pulled(pod.UID, now.Sub(asked), size)
	m.startMetrics.pulled(pod, span{asked, now})
}

// Stated records a status that takes the place of an earlier one; firstSeen is when a source first had the pod.
func (m *Metrics) Stated(uid types.UID, firstSeen time.Time, before, after *corev1.PodStatus) {
	m.stated(uid, firstSeen, before, after)
	m.ended(before, after)
}

// factory makes metrics and registers them. Those without labels show from the start.
type factory struct {
	exemplars
	registry prometheus.Registerer
	errs     []error
}

func (f *factory) counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.errs = append(f.errs, f.registry.Register(c))
	if len(labels) == 0 {
		c.WithLabelValues()
	}
	return c
}

// hidden is a gauge that doesn't show before it has a value.
func (f *factory) hidden(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.errs = append(f.errs, f.registry.Register(g))
	return g
}

func (f *factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := f.hidden(name, help, labels...)
	if len(labels) == 0 {
		g.WithLabelValues()
	}
	return g
}

func (f *factory) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	f.errs = append(f.errs, f.registry.Register(h))
	if len(labels) == 0 {
		h.WithLabelValues()
	}
	return h
}

// exemplars are the trace IDs of the pods that were measured, of which each bucket keeps the last one.
type exemplars struct{ traced topic.Sampling }

// observe records a value of the pod.
func (e exemplars) observe(of *prometheus.HistogramVec, uid types.UID, value float64, labels ...string) {
	o := of.WithLabelValues(labels...)
	if with, ok := o.(prometheus.ExemplarObserver); ok && e.traced.Has(string(uid)) {
		with.ObserveWithExemplar(value, prometheus.Labels{"trace_id": fmt.Sprintf("%x", topic.TraceID(string(uid)))})
		return
	}
	o.Observe(value)
}

// Values of the label container_type.
const (
	container          = "container"
	initContainer      = "init_container"
	ephemeralContainer = "ephemeral_container"
)

// typeOf is the label of the pod's container.
func typeOf(pod *corev1.Pod, name string) string {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return initContainer
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return ephemeralContainer
		}
	}
	return container
}

// static is the value of the label static.
func static(yes bool) string {
	if yes {
		return "true"
	}
	return ""
}

func seconds(since time.Time) float64 { return time.Since(since).Seconds() }
