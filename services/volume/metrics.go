package volume

import (
	"cmp"
	"slices"
	"strconv"
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
}

// counts are a pod's part in the numbers of volumes.
type counts struct {
	volumes []counted
	stuck   bool
}

// counted is a volume by its plug-in and by whether it is wanted and mounted.
type counted struct {
	plugin           string
	desired, mounted bool
}

// newMetrics registers the metrics.
func newMetrics(r prometheus.Registerer) (metrics, error) {
	m := metrics{
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "storage_operation_duration_seconds",
			Help:    "How long it took to set up, tear down or change a volume.",
			Buckets: []float64{.001, .005, .025, .1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
		overall: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "volume_operation_total_seconds",
			Help:    "Time from when a volume was first tried to be mounted until it was.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		}, []string{"plugin_name", "operation_name"}),
		total: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "volume_manager_total_volumes",
			Help: "Volumes that pods want (desired_state_of_world) and that are mounted (actual_state_of_world).",
		}, []string{"plugin_name", "state"}),
		orphans: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes",
			Help: "Pods that are gone and whose volumes were removed, since the start, which is when they are looked for.",
		}),
		stuck: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_orphan_pod_cleaned_volumes_errors", Help: "Pods that are gone and whose volumes can't be removed.",
		}),
	}
	return m, daemon.RegisterMetrics(r, "volumes", m.operations, m.overall, m.total, m.orphans, m.stuck)
}

// reset begins with no volumes.
func (m metrics) reset() {
	m.total.Reset()
	m.stuck.Set(0)
}

// count brings the numbers up to date with the pod: how many volumes there are, and the pods that are gone and whose
// volumes can't be removed.
func (m metrics) count(p *pod) {
	now := counts{stuck: p.update.Pod == nil && p.problem != ""}
	// A pod that has ended wants no volume any more; its own are listed as long as the pod is.
	wanted := p.update.Pod != nil && p.update.Lifecycle != topic.Terminated
	for _, v := range p.volumes {
		now.volumes = append(now.volumes, counted{v.plugin(), wanted, v.phase == topic.VolumeMounted})
	}
	m.replace(p, now)
}

// forget counts the pod no longer.
func (m metrics) forget(p *pod) { m.replace(p, counts{}) }

func (m metrics) replace(p *pod, now counts) {
	if now.stuck == p.counted.stuck && slices.Equal(now.volumes, p.counted.volumes) {
		return
	}
	m.add(p.counted, -1)
	m.add(now, 1)
	p.counted = now
}

func (m metrics) add(c counts, sign float64) {
	part := func(is bool) float64 {
		if is {
			return sign
		}
		return 0
	}
	m.stuck.Add(part(c.stuck))
	for _, v := range c.volumes {
		m.total.WithLabelValues(v.plugin, "desired_state_of_world").Add(part(v.desired))
		m.total.WithLabelValues(v.plugin, "actual_state_of_world").Add(part(v.mounted))
	}
}

// done counts what a worker has done, and the first mount of a volume, whose phase is as it was before. One that isn't
// attached wasn't mounted. One whose claim was looked at for growth was mounted before, and growth counts by itself.
func (m metrics) done(v *volume, o outcome, now time.Time) {
	failure, look := failureOf(o.err), v.result.LookAt
	if failure.Unattached || o.op == opMount && !look.IsZero() && !v.since.Before(look) {
		return
	}
	plugin, operation := cmp.Or(o.result.Plugin, v.plugin()), "volume_"+string(o.op)
	if o.op == opMount && o.err == nil && v.phase != topic.VolumeMounted {
		m.overall.WithLabelValues(plugin, "overall_volume_mount").Observe(now.Sub(v.wanted).Seconds())
	}
	if o.result.Device+v.result.Device != "" || failure.Reason == "FailedMapVolume" {
		operation = map[op]string{opMount: "map_volume", opUnmount: "unmap_volume"}[o.op]
	}
	m.observe(plugin, operation, o.result.Migrated || v.result.Migrated, now.Sub(v.since), o.err)
}

// observe counts one operation.
func (m metrics) observe(plugin, operation string, migrated bool, took time.Duration, err error) {
	status := "success"
	if err != nil {
		status = "fail-unknown"
	}
	m.operations.WithLabelValues(plugin, operation, status, strconv.FormatBool(migrated)).Observe(took.Seconds())
}
