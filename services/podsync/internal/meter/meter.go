package meter

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Meter has podsync's metrics. Its methods may be called from any goroutine.
type Meter struct {
	pods   podMetrics
	deeds  deedMetrics
	starts startMetrics

	mu      sync.Mutex
	pending map[string]*pending // pods on their way up, by UID
	network bool                // the first pod with a network of its own has started
}

// New makes the metrics and registers them.
func New(r prometheus.Registerer) (*Meter, error) {
	f := &factory{registry: r}
	m := &Meter{pods: newPodMetrics(f), deeds: newDeedMetrics(f), starts: newStartMetrics(f), pending: map[string]*pending{}}
	if err := errors.Join(f.errs...); err != nil {
		return nil, fmt.Errorf("register the metrics of podsync: %w", err)
	}
	return m, nil
}

// factory makes metrics and registers them. Those without labels show from the start.
type factory struct {
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

func (f *factory) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.errs = append(f.errs, f.registry.Register(g))
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
