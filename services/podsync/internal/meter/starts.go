package meter

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// startMetrics are those of how long pods take to run.
type startMetrics struct {
	worker, pod, sli, total *prometheus.HistogramVec
	first                   *prometheus.GaugeVec
}

func newStartMetrics(f *factory) startMetrics {
	buckets := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	return startMetrics{
		worker: f.histogram("kubelet_pod_worker_start_duration_seconds", "Time from when a source first had a pod until its worker began.", prometheus.DefBuckets),
		pod:    f.histogram("kubelet_pod_start_duration_seconds", "Time from when a source first had a pod until it ran.", buckets),
		sli: f.histogram("kubelet_pod_start_sli_duration_seconds", "Time from a pod's creation until the API server said that all its containers run, without image pulls "+
			"and init containers; stateless pods of the API server's only.", buckets),
		total: f.histogram("kubelet_pod_start_total_duration_seconds", "Time from a pod's creation until the API server said that all its containers run.", buckets),
		first: f.gauge("kubelet_first_network_pod_start_sli_duration_seconds", "The same as pod_start_sli_duration_seconds, of the first pod off the host network."),
	}
}

// pending is a pod on its way up.
type pending struct{ pulls []span }

type span struct{ begin, end time.Time }

// Appeared tells of a pod of the API server's that is new: it has no status of this node yet.
func (m *Meter) Appeared(pod *corev1.Pod) {
	if pod.Status.StartTime != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pending[string(pod.UID)] = &pending{}
}

// Pulled tells of an image that was pulled for the pod since it asked for it.
func (m *Meter) Pulled(pod *corev1.Pod, asked time.Time, size uint64) {
	now := time.Now()
	m.deeds.pulls.WithLabelValues(sizeLabel(size)).Observe(now.Sub(asked).Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.pending[string(pod.UID)]; p != nil {
		p.pulls = append(p.pulls, span{asked, now})
	}
}

// Seen tells of a pod as the API server has it now, and of what runs of it.
func (m *Meter) Seen(pod *corev1.Pod, obs *topic.PodObservation) {
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
	m.starts.total.WithLabelValues().Observe(total.Seconds())
	if stateful(pod) {
		return
	}
	sli := max(total-together(p.pulls)-initialised(pod, obs), 0)
	m.starts.sli.WithLabelValues().Observe(sli.Seconds())
	if !pod.Spec.HostNetwork && !m.network {
		m.network = true
		m.starts.first.WithLabelValues().Set(sli.Seconds())
	}
}

// Gone forgets a pod.
func (m *Meter) Gone(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pending, uid)
}

// Stated tells of a status that takes the place of an earlier one; firstSeen is when a source first had the pod.
func (m *Meter) Stated(firstSeen time.Time, before, after *corev1.PodStatus) {
	if (before.Phase == "" || before.Phase == corev1.PodPending) && after.Phase == corev1.PodRunning && startedSince(firstSeen, after) {
		m.starts.pod.WithLabelValues().Observe(seconds(firstSeen))
	}
	m.ended(before, after)
}

// startedSince tells whether a container has started since then; those of a pod that was running when it was first seen
// have not.
func startedSince(then time.Time, status *corev1.PodStatus) bool {
	return slices.ContainsFunc(status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil && !s.State.Running.StartedAt.Time.Before(then)
	})
}

// unscheduled tells of a pod that had to wait for room in the cluster, which isn't the node's doing.
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

// stateful tells whether the pod mounts what may have to be attached, by the definition of the pod startup latency SLI.
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

// initialised is how long the pod's init containers ran, those apart that go on beside the others.
func initialised(pod *corev1.Pod, obs *topic.PodObservation) time.Duration {
	var sum time.Duration
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
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
