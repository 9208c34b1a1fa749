package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	crierrors "k8s.io/cri-api/pkg/errors"

	"kubelot.dev/services/podsync/internal/worker/plan"
)

// actionMetrics are those of what is done for single pods, which the workers and the executor feed.
type actionMetrics struct {
	exemplars
	worker, sandboxDuration, resizes                                              *prometheus.HistogramVec
	pods, podErrors, userNS, userNSErrors, sandboxErrors                          *prometheus.CounterVec
	containers, containerErrors, terminated                                       *prometheus.CounterVec
	imageVolumes, imageVolumesMounted, imageVolumeErrors, sleepEnded, httpInstead *prometheus.CounterVec
}

func newActionMetrics(f *factory) *actionMetrics {
	resizeBuckets := []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}
	return &actionMetrics{
		exemplars: f.exemplars,
		worker: f.histogram("kubelet_pod_worker_duration_seconds",
			"How long a pod's worker was at work without a pause, by what for: create, update, sync, "+
				"kill or terminated.", prometheus.DefBuckets, "operation_type"),
		sandboxDuration: f.histogram("kubelet_run_podsandbox_duration_seconds",
			"How long the runtime took to make sandboxes, by runtime handler.", prometheus.DefBuckets, "runtime_handler"),
		resizes: f.histogram("kubelet_pod_resize_duration_milliseconds",
			"How long it took, in milliseconds, to give pods the resources that they were granted.", resizeBuckets, "success"),
		pods:      f.counter("kubelet_started_pods_total", "Tries to start a pod: sandboxes begun."),
		podErrors: f.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made."),
		userNS: f.counter("kubelet_started_user_namespaced_pods_total",
			"Tries to start a pod with a user namespace of its own."),
		userNSErrors: f.counter("kubelet_started_user_namespaced_pods_errors_total",
			"Sandboxes with a user namespace that could not be made."),
		sandboxErrors: f.counter("kubelet_run_podsandbox_errors_total",
			"Sandboxes that the runtime could not make, by runtime handler.", "runtime_handler"),
		containers: f.counter("kubelet_started_containers_total", "Tries to start a container, by its type.",
			"container_type"),
		containerErrors: f.counter("kubelet_started_containers_errors_total",
			"Containers that could not be started, by their type and the waiting reason.", "container_type", "code"),
		terminated: f.counter("kubelet_terminated_containers_total",
			"Containers that ended, by their type, exit code and reason.",
			"container_type", "exit_code", "reason"),
		imageVolumes: f.counter("kubelet_image_volume_requested_total",
			"Image volumes that starting containers asked for."),
		imageVolumesMounted: f.counter("kubelet_image_volume_mounted_succeed_total",
			"Image volumes mounted into containers."),
		imageVolumeErrors: f.counter("kubelet_image_volume_mounted_errors_total",
			"Image volumes that could not be mounted."),
		sleepEnded: f.counter("kubelet_sleep_action_terminated_early_total",
			"Sleep hooks that were ended before their time."),
		httpInstead: f.counter("kubelet_lifecycle_handler_http_fallbacks_total",
			"Lifecycle hooks that asked for HTTPS and were answered over HTTP."),
	}
}

// Action is what was done for a pod.
type Action struct {
	Pod       *corev1.Pod
	Kind      plan.Kind
	Container string
	Took      time.Duration
	// Code is the waiting reason of what failed; Err is nil where nothing did.
	Code string
	Err  error
}

// Done records an action that ended by itself, well or badly.
func (m *actionMetrics) Done(a Action) {
	switch a.Kind {
	case plan.CreateSandbox:
		m.countSandbox(a)
	case plan.StartContainer:
		m.countContainer(a)
		m.countVolumes(a)
	case plan.EnsureImage:
		if a.Err != nil { // with the image, the start itself follows
			m.countContainer(a)
		}
	case plan.ResizePod:
		m.observe(m.resizes, a.Pod.UID, float64(a.Took.Milliseconds()), strconv.FormatBool(a.Err == nil))
	}
}

func (m *actionMetrics) countSandbox(a Action) {
	userNS := a.Pod.Spec.HostUsers != nil && !*a.Pod.Spec.HostUsers
	m.pods.WithLabelValues().Inc()
	if userNS {
		m.userNS.WithLabelValues().Inc()
	}
	if a.Err == nil {
		return
	}
	m.podErrors.WithLabelValues().Inc()
	if userNS {
		m.userNSErrors.WithLabelValues().Inc()
	}
}

func (m *actionMetrics) countContainer(a Action) {
	kind := typeOf(a.Pod, a.Container)
	m.containers.WithLabelValues(kind).Inc()
	if a.Err != nil {
		m.containerErrors.WithLabelValues(kind, a.Code).Inc()
	}
}

func (m *actionMetrics) countVolumes(a Action) {
	c := plan.Container(a.Pod, a.Container)
	if c == nil {
		return
	}
	refused := a.Err != nil && strings.HasPrefix(a.Err.Error(), crierrors.ErrImageVolumeMountFailed.Error())
	for i := range a.Pod.Spec.Volumes {
		v := &a.Pod.Spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		for j := range c.VolumeMounts {
			switch {
			case c.VolumeMounts[j].Name != v.Name:
				continue
			case refused:
				m.imageVolumeErrors.WithLabelValues().Inc()
			default:
				m.imageVolumesMounted.WithLabelValues().Inc()
			}
			m.imageVolumes.WithLabelValues().Inc()
		}
	}
}

// RanSandbox records the runtime's part in making a sandbox.
func (m *actionMetrics) RanSandbox(uid types.UID, handler string, took time.Duration, err error) {
	m.observe(m.sandboxDuration, uid, took.Seconds(), handler)
	if err != nil {
		m.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

// Worked records that a pod's worker had something under way all the time that it took.
func (m *actionMetrics) Worked(uid types.UID, operation string, took time.Duration) {
	m.observe(m.worker, uid, took.Seconds(), operation)
}

// SleepEnded records a sleep hook that was ended before its time, HTTPInstead one that fell back to HTTP.
func (m *actionMetrics) SleepEnded() { m.sleepEnded.WithLabelValues().Inc() }

// HTTPInstead records a hook that asked for HTTPS and was answered over HTTP.
func (m *actionMetrics) HTTPInstead() { m.httpInstead.WithLabelValues().Inc() }

// ended counts the containers that have ended between two statuses of a pod; some may run again already.
func (m *actionMetrics) ended(before, after *corev1.PodStatus) {
	m.endedOf(initContainer, before.InitContainerStatuses, after.InitContainerStatuses)
	m.endedOf(container, before.ContainerStatuses, after.ContainerStatuses)
	m.endedOf(ephemeralContainer, before.EphemeralContainerStatuses, after.EphemeralContainerStatuses)
}

func (m *actionMetrics) endedOf(kind string, before, after []corev1.ContainerStatus) {
	for i := range after {
		end := lastEnd(&after[i])
		if end == nil || known(before, after[i].Name, end.ContainerID) {
			continue
		}
		m.terminated.WithLabelValues(kind, strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
	}
}

// lastEnd is how the container, or the one in whose place it is, ended; nil if neither has.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// known reports whether the statuses have that end already.
func known(statuses []corev1.ContainerStatus, name, id string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		end := lastEnd(&s)
		return s.Name == name && end != nil && end.ContainerID == id
	})
}
