package lease

import (
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon"
)

// metrics are the kubelet's of the node and of how long it took to come up. The times are reported for a Node that this
// process has made, as by the kubelet, whose part is this daemon's here.
type metrics struct {
	name, conditions                                               *prometheus.GaugeVec
	preKubelet, preRegistration, registration, postRegistry, total prometheus.Gauge

	uptime                                time.Duration // of the machine at start; 0 where it isn't known
	start, attempted, registered, readied time.Time
}

func newMetrics(node string, uptime time.Duration) *metrics {
	gauge := func(part, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_node_startup_" + part + "duration_seconds",
			Help: help,
		})
	}
	m := &metrics{
		name: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_node_name",
			Help: "The node's name; always 1.",
		}, []string{"node"}),
		conditions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelot_node_condition",
			Help: "1 for the status that each of the node's own conditions has here, whether or not the API server has it.",
		}, []string{"condition", "status"}),
		preKubelet: gauge("pre_kubelet_", "From the machine's boot until kubelot-lease began."),
		preRegistration: gauge("pre_registration_",
			"From the start of kubelot-lease until it first tried to register the Node."),
		registration: gauge("registration_", "From the first try to register the Node until it was registered."),
		postRegistry: gauge("post_registration_", "From the Node's registration until it was first ready."),
		total:        gauge("", "From the machine's boot until the Node was first ready."),
		uptime:       uptime, start: time.Now(),
	}
	m.name.WithLabelValues(node).Set(1)
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	return daemon.RegisterMetrics(r, "the node", m.name, m.conditions, m.preKubelet, m.preRegistration, m.registration,
		m.postRegistry, m.total)
}

// statuses are all that a condition can have.
var statuses = []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}

// wanted records the conditions as they should be.
func (m *metrics) wanted(conditions []corev1.NodeCondition) {
	for i := range conditions {
		c := &conditions[i]
		if !ownCondition(c.Type) {
			continue
		}
		for _, status := range statuses {
			value := 0.0
			if c.Status == status {
				value = 1
			}
			m.conditions.WithLabelValues(string(c.Type), string(status)).Set(value)
		}
	}
}

// attempt records a try to register the Node.
func (m *metrics) attempt() {
	if m.attempted.IsZero() {
		m.attempted = time.Now()
	}
}

// created records that this process has created the Node.
func (m *metrics) created() {
	if !m.registered.IsZero() {
		return
	}
	m.registered = time.Now()
	if m.uptime > 0 {
		m.preKubelet.Set(m.uptime.Seconds())
	}
	m.preRegistration.Set(m.attempted.Sub(m.start).Seconds())
	m.registration.Set(m.registered.Sub(m.attempted).Seconds())
}

// seen records the Node as the API server has it.
func (m *metrics) seen(n *corev1.Node) {
	c := condition(n.Status.Conditions, corev1.NodeReady)
	if m.registered.IsZero() || !m.readied.IsZero() || c == nil || c.Status != corev1.ConditionTrue {
		return
	}
	m.readied = time.Now()
	m.postRegistry.Set(m.readied.Sub(m.registered).Seconds())
	if m.uptime > 0 {
		m.total.Set((m.uptime + m.readied.Sub(m.start)).Seconds())
	}
}

// uptime is how long the machine runs, in whole seconds; 0 where the kernel doesn't tell.
func uptime() time.Duration {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return time.Duration(info.Uptime) * time.Second
}

// renewals registers when the lease was last renewed, and returns what is to be told of it. Before the first renewal
// nothing is shown.
func renewals(r prometheus.Registerer) (func(time.Time), error) {
	last := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubelot_lease_renewed_timestamp_seconds",
		Help: "Unix time of the last renewal of the node's lease; the Node counts as lost when this is older than the " +
			"lease lasts (nodeLeaseDurationSeconds).",
	}, nil)
	told := func(at time.Time) { last.WithLabelValues().Set(float64(at.UnixMilli()) / 1000) }
	return told, daemon.RegisterMetrics(r, "the lease", last)
}
