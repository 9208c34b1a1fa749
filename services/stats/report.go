package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/daemon"
)

// report says what can't be read: in the daemon's health and as a metric.
type report struct {
	problems *daemon.Problems

	failures  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	oomKills  prometheus.Counter
	volumes   *prometheus.HistogramVec
}

func newReport(env daemon.Env) (*report, error) {
	r := &report{
		problems: daemon.NewProblems(env.Health, "leaving out figures that can't be read: "),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelot_stats_read_errors_total",
			Help: "Readings that failed, by what was read; what can't be read is left out of answers.",
		}, []string{"source"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelot_stats_answer_duration_seconds", Help: "How long answers took, by what was asked for.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"answer"}),
		oomKills: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelot_stats_system_oom_kills_total",
			Help: "Processes that the kernel killed because the machine had no memory left.",
		}),
	}
	r.volumes = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubelet_volume_metric_collection_duration_seconds",
		Help:    "How long it took to measure volumes: file by file (du), or by asking the filesystem (statfs).",
		Buckets: prometheus.DefBuckets,
	}, []string{"metric_source"})
	if env.Metrics == nil {
		return r, nil
	}
	return r, daemon.RegisterMetrics(env.Metrics, "stats", r.failures, r.durations, r.oomKills, r.volumes)
}

// source says how the last reading of a source went.
func (r *report) source(name string, err error) {
	if err != nil {
		r.failures.WithLabelValues(name).Inc()
	}
	r.problems.Set(name, err)
}

// measured records that a volume was measured since then.
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
