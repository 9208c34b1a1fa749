package stats

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// report says what can't be read: in the daemon's health, in its log when it begins, and as a metric.
type report struct {
	health daemon.HealthReporter
	log    *slog.Logger

	mu       sync.Mutex
	problems map[string]string

	failures  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	oomKills  prometheus.Counter
	volumes   *prometheus.HistogramVec
}

func newReport(env daemon.Env) (*report, error) {
	r := &report{
		health: env.Health, log: env.Log, problems: map[string]string{},
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelot_stats_read_errors_total", Help: "Readings that failed, by what was read; what can't be read is left out of answers.",
		}, []string{"source"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelot_stats_answer_duration_seconds", Help: "How long answers took, by what was asked for.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"answer"}),
		oomKills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelot_stats_system_oom_kills_total", Help: "Processes that the kernel killed because the machine had no memory left.",
		}),
	}
	r.volumes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_volume_metric_collection_duration_seconds", Help: "How long it took to measure volumes: file by file (du), or by asking the filesystem (statfs).",
		Buckets: prometheus.DefBuckets,
	}, []string{"metric_source"})
	if env.Metrics == nil {
		return r, nil
	}
	if err := errors.Join(env.Metrics.Register(r.failures), env.Metrics.Register(r.durations), env.Metrics.Register(r.oomKills), env.Metrics.Register(r.volumes)); err != nil {
		return nil, fmt.Errorf("register the metrics of stats: %w", err)
	}
	return r, nil
}

// source says how the last reading of a source went.
func (r *report) source(name string, err error) {
	if err != nil {
		r.failures.WithLabelValues(name).Inc()
	}
	r.problem(name, err)
}

// problem states or, with nil, takes back a problem. The health names all that there are.
func (r *report) problem(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.problems[name]
	switch {
	case err == nil && before == "":
	case err == nil:
		delete(r.problems, name)
	default:
		r.problems[name] = cmp.Or(strings.ReplaceAll(err.Error(), "\n", "; "), "unknown error")
	}
	if len(r.problems) == 0 {
		r.health.Set(topic.Healthy, "")
		return
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.problems)) {
		parts = append(parts, name+": "+r.problems[name])
	}
	r.health.Set(topic.Degraded, "some figures can't be read and are left out: "+strings.Join(parts, "; "))
}

// measured tells of a volume that was measured since then.
func (r *report) measured(walk bool, began time.Time) {
	source := "statfs"
	if walk {
		source = "du"
	}
	r.volumes.WithLabelValues(source).Observe(time.Since(began).Seconds())
}

func (r *report) answered(what string, began time.Time) {
	r.durations.WithLabelValues(what).Observe(time.Since(began).Seconds())
}
