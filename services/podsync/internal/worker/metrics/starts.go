package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// startMetrics are those of how long pods take to run.
type startMetrics struct {
	exemplars
	worker, pod, sli, total *prometheus.HistogramVec
	first                   *prometheus.GaugeVec

	mu      sync.Mutex
	pending map[string]*pending // pods on their way up, by UID
	network bool                // the first pod with a network of its own has started
}

func newStartMetrics(f *factory) *startMetrics {
	buckets := []float64{
		0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900,
		1200, 1800, 2700, 3600,
	}
	return &startMetrics{
		exemplars: f.exemplars, pending: map[string]*pending{},
		worker: f.histogram("kubelet_pod_worker_start_duration_seconds",
			"Time from when a source first had a pod until its worker began.", prometheus.DefBuckets),
		pod: f.histogram("kubelet_pod_start_duration_seconds", "Time from when a source first had a pod until it ran.",
			buckets),
		sli: f.histogram("kubelet_pod_start_sli_duration_seconds",
			"Time from a pod's creation until the API server said that all its containers run, without image pulls "+
				"and init containers; stateless pods of the API server's only.", buckets),
		total: f.histogram("kubelet_pod_start_total_duration_seconds",
			"Time from a pod's creation until the API server said that all its containers run.", buckets),
		first: f.gauge("kubelet_first_network_pod_start_sli_duration_seconds",
			"The same as pod_start_sli_duration_seconds, of the first pod off the host network."),
	}
}

// pending is a pod on its way up.
type pending struct{ pulls []span }

type span struct{ begin, end time.Time }

// Appeared records a pod of the API server's that is new: it has no status of this node yet.
func (m *startMetrics) Appeared(pod *corev1.Pod) {
	if pod.Status.StartTime != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[string(pod.UID)] = &pending{}
}

// pulled keeps that the pod waited for a pull.
func (m *startMetrics) pulled(pod *corev1.Pod, pull span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pending[string(pod.UID)]; p != nil {
		p.pulls = append(p.pulls, pull)
	}
}

// Seen records a pod as the API server has it now, and of what runs of it.
func (m *startMetrics) Seen(pod *corev1.Pod, obs *topic.PodObservation) {
	uid := string(pod.UID)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pending[uid]
	switch {
	case p == nil:
		return
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded || unscheduled(pod):
		delete(m.pending, uid)
		return
	case pod.Status.StartTime == nil || !allRun(pod):
		return
	}
	delete(m.pending, uid)
	total := time.Since(pod.CreationTimestamp.Time)
	m.observe(m.total, pod.UID, total.Seconds())
	if stateful(pod) {
		return
	}
	sli := max(total-together(p.pulls)-initialised(pod, obs), 0)
	m.observe(m.sli, pod.UID, sli.Seconds())
	if !pod.Spec.HostNetwork && !m.network {
		m.network = true
		m.first.WithLabelValues().Set(sli.Seconds())
	}
}

// Gone forgets a pod.
func (m *startMetrics) Gone(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, uid)
}

// stated measures a pod that has begun to run.
func (m *startMetrics) stated(uid types.UID, firstSeen time.Time, before, after *corev1.PodStatus) {
	if (before.Phase == "" || before.Phase == corev1.PodPending) && after.Phase == corev1.PodRunning &&
		startedSince(firstSeen, after) {
		m.observe(m.pod, uid, seconds(firstSeen))
	}
}

// startedSince reports whether a container has started since then; those of a pod that was running when it was first
// seen have not.
func startedSince(then time.Time, status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && !s.State.Running.StartedAt.Time.Before(then)
	})
}

// unscheduled reports whether the pod had to wait for room in the cluster, which isn't the node's doing.
func unscheduled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}

func allRun(pod *corev1.Pod) bool {
	for i := range pod.Status.ContainerStatuses {
		if r := pod.Status.ContainerStatuses[i].State.Running; r == nil || r.StartedAt.IsZero() {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// stateful reports whether the pod mounts what may have to be attached, by the definition of the pod startup latency
// SLI.
func stateful(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// together is the time in which at least one of the spans was under way.
func together(spans []span) time.Duration {
	slices.SortFunc(spans, func(a, b span) int { return a.begin.Compare(b.begin) })
	var sum time.Duration
	var end time.Time
	for _, s := range spans {
		if s.begin.Before(end) {
			s.begin = end
		}
		if s.end.After(s.begin) {
			sum += s.end.Sub(s.begin)
			end = s.end
		}
	}
	return sum
}

// initialised is how long the pod's init containers ran, without those that go on next to the others.
func initialised(pod *corev1.Pod, obs *topic.PodObservation) time.Duration {
	var sum time.Duration
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if podspec.IsSidecar(c) {
			continue
		}
		for j := range obs.Containers {
			if o := &obs.Containers[j]; o.Name == c.Name && o.State == topic.ContainerExited && o.FinishedAt.After(o.StartedAt) {
				sum += o.FinishedAt.Sub(o.StartedAt)
			}
		}
	}
	return sum
}
