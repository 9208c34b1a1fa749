package volume

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

// metrics are the kubelet's about volumes.
type metrics struct {
	operations, overall *prometheus.HistogramVec
	total               *prometheus.GaugeVec
	orphans, stuck      prometheus.Gauge
	known               map[string]bool // the plug-ins that have had volumes
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) (metrics, error) {
	m := metrics{
		known: map[string]bool{},
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storage_operation_duration_seconds",
			Help:    "How long it took to set up or tear down a volume.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		overall: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "volume_operation_total_seconds",
			Help:    "Time from when a volume was first tried to be mounted until it was.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"plugin_name", "operation_name"}),
		total: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "volume_manager_total_volumes", Help: "Volumes that pods want (desired_state_of_world) and that are mounted (actual_state_of_world).",
		}, []string{"plugin_name", "state"}),
		orphans: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes", Help: "Pods that are gone and whose volumes were removed, since the start, which is when they are looked for.",
		}),
		stuck: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes_errors", Help: "Pods that are gone and whose volumes can't be removed.",
		}),
	}
	return m, daemon.RegisterMetrics(r, "volumes", m.operations, m.overall, m.total, m.orphans, m.stuck)
}

// count shows how many volumes there are, and the pods that are gone and whose volumes can't be removed.
func (m metrics) count(pods map[string]*pod) {
	desired, mounted, stuck := map[string]int{}, map[string]int{}, 0
	for _, p := range pods {
		if p.update.Pod == nil && p.problem != "" {
			stuck++
		}
		// A pod that has ended wants no volume any more; its own are listed as long as the pod is.
		wanted := p.update.Pod != nil && p.update.Lifecycle != topic.Terminated
		for _, v := range p.volumes {
			m.known[v.plugin()] = true
			if wanted {
				desired[v.plugin()]++
			}
			if v.phase == topic.VolumeMounted {
				mounted[v.plugin()]++
			}
		}
	}
	m.stuck.Set(float64(stuck))
	for name := range m.known {
		m.total.WithLabelValues(name, "desired_state_of_world").Set(float64(desired[name]))
		m.total.WithLabelValues(name, "actual_state_of_world").Set(float64(mounted[name]))
	}
}

// done counts one operation, and the first mount of a volume, whose phase is as it was before.
func (m metrics) done(v *volume, o outcome, now time.Time) {
	plugin, what, took, err := cmp.Or(o.result.Plugin, v.plugin()), o.op, now.Sub(v.since), o.err
	if what == opMount && err == nil && v.phase != topic.VolumeMounted {
		m.overall.WithLabelValues(plugin, "overall_volume_mount").Observe(now.Sub(v.wanted).Seconds())
	}
	status, operation := "success", "volume_mount"
	if err != nil {
		status = "fail-unknown"
	}
	if what == opUnmount {
		operation = "volume_unmount"
	}
	m.operations.WithLabelValues(plugin, operation, status, "false").Observe(took.Seconds())
}
