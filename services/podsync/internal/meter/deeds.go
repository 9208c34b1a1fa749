package meter

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"kubelot.dev/services/podsync/internal/plan"
)

// deedMetrics are those of what is done for single pods, which the actor, the puller and the cgroup manager feed.
type deedMetrics struct {
	worker, sandboxDuration, pulls, cgroups, resizes                              *prometheus.HistogramVec
	pods, podErrors, userNS, userNSErrors, sandboxErrors, images                  *prometheus.CounterVec
	containers, containerErrors, terminated                                       *prometheus.CounterVec
	imageVolumes, imageVolumesMounted, imageVolumeErrors, sleepEnded, httpInstead *prometheus.CounterVec
	pullChecks                                                                    *prometheus.CounterVec
	cgroupVersion, pullIntents, pulledRecords                                     *prometheus.GaugeVec
}

func newDeedMetrics(f *factory) deedMetrics {
	pullBuckets := []float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	resizeBuckets := []float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000}
	return deedMetrics{
		worker: f.histogram("kubelet_pod_worker_duration_seconds", "How long a pod's worker was at work without a pause, by what for: create, update, sync, "+
			"kill or terminated.", prometheus.DefBuckets, "operation_type"),
		sandboxDuration: f.histogram("kubelet_run_podsandbox_duration_seconds", "How long the runtime took to make sandboxes, by runtime handler.", prometheus.DefBuckets, "runtime_handler"),
		pulls:           f.histogram("kubelet_image_pull_duration_seconds", "How long image pulls took with the wait for their turn, by the image's size.", pullBuckets, "image_size_in_bytes"),
		images: f.counter("kubelet_image_manager_ensure_image_requests_total", "Wishes of containers for their image, by pull policy, by whether it was there, and "+
			"by whether it had to be pulled.", "pull_policy", "present_locally", "pull_required"),
		pullChecks: f.counter("kubelet_imagemanager_image_mustpull_checks_total", "Checks whether a pod may use an image that is there without its credentials being tried, "+
			"by result: credentialPolicyAllowed, credentialRecordFound, mustAuthenticate or error.", "result"),
		pullIntents:     f.gauge("kubelet_imagemanager_ondisk_pullintents", "Records of image pulls that are under way, or whose end wasn't seen."),
		pulledRecords:   f.gauge("kubelet_imagemanager_ondisk_pulledrecords", "Records of images that were pulled."),
		cgroups:         f.histogram("kubelet_cgroup_manager_duration_seconds", "How long it took to create, update and destroy cgroups.", prometheus.DefBuckets, "operation_type"),
		resizes:         f.histogram("kubelet_pod_resize_duration_milliseconds", "How long it took, in milliseconds, to give pods the resources that they were granted.", resizeBuckets, "success"),
		pods:            f.counter("kubelet_started_pods_total", "Tries to start a pod: sandboxes begun."),
		podErrors:       f.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be made."),
		userNS:          f.counter("kubelet_started_user_namespaced_pods_total", "Tries to start a pod with a user namespace of its own."),
		userNSErrors:    f.counter("kubelet_started_user_namespaced_pods_errors_total", "Sandboxes with a user namespace that could not be made."),
		sandboxErrors:   f.counter("kubelet_run_podsandbox_errors_total", "Sandboxes that the runtime could not make, by runtime handler.", "runtime_handler"),
		containers:      f.counter("kubelet_started_containers_total", "Tries to start a container, by its type.", "container_type"),
		containerErrors: f.counter("kubelet_started_containers_errors_total", "Containers that could not be started, by their type and the waiting reason.", "container_type", "code"),
		terminated: f.counter("kubelet_terminated_containers_total", "Containers that ended, by their type, exit code and reason.",
			"container_type", "exit_code", "reason"),
		imageVolumes:        f.counter("kubelet_image_volume_requested_total", "Image volumes that starting containers asked for."),
		imageVolumesMounted: f.counter("kubelet_image_volume_mounted_succeed_total", "Image volumes mounted into containers."),
		imageVolumeErrors:   f.counter("kubelet_image_volume_mounted_errors_total", "Image volumes that could not be mounted."),
		sleepEnded:          f.counter("kubelet_sleep_action_terminated_early_total", "Sleep hooks that were ended before their time."),
		httpInstead:         f.counter("kubelet_lifecycle_handler_http_fallbacks_total", "Lifecycle hooks that asked for HTTPS and were answered over HTTP."),
		cgroupVersion:       f.gauge("kubelet_cgroup_version", "The machine's cgroup version, 1 or 2."),
	}
}

// Deed is what was done for a pod.
type Deed struct {
	Pod       *corev1.Pod
	Kind      plan.Kind
	Container string
	Took      time.Duration
	// Code is the waiting reason of what failed; Err is nil where nothing did.
	Code string
	Err  error
}

// Done tells of a deed that ended by itself, well or badly.
func (m *Meter) Done(d Deed) {
	switch d.Kind {
	case plan.CreateSandbox:
		m.sandbox(d)
	case plan.StartContainer:
		m.container(d)
		m.imageVolumes(d)
	case plan.EnsureImage:
		if d.Err != nil { // with the image, the start itself follows
			m.container(d)
		}
	case plan.ResizePod:
		m.deeds.resizes.WithLabelValues(strconv.FormatBool(d.Err == nil)).Observe(float64(d.Took.Milliseconds()))
	}
}

func (m *Meter) sandbox(d Deed) {
	userNS := d.Pod.Spec.HostUsers != nil && !*d.Pod.Spec.HostUsers
	m.deeds.pods.WithLabelValues().Inc()
	if userNS {
		m.deeds.userNS.WithLabelValues().Inc()
	}
	if d.Err == nil {
		return
	}
	m.deeds.podErrors.WithLabelValues().Inc()
	if userNS {
		m.deeds.userNSErrors.WithLabelValues().Inc()
	}
}

func (m *Meter) container(d Deed) {
	kind := typeOf(d.Pod, d.Container)
	m.deeds.containers.WithLabelValues(kind).Inc()
	if d.Err != nil {
		m.deeds.containerErrors.WithLabelValues(kind, d.Code).Inc()
	}
}

func (m *Meter) imageVolumes(d Deed) {
	c := plan.Container(d.Pod, d.Container)
	if c == nil {
		return
	}
	refused := d.Err != nil && strings.HasPrefix(d.Err.Error(), crierrors.ErrImageVolumeMountFailed.Error())
	for i := range d.Pod.Spec.Volumes {
		v := &d.Pod.Spec.Volumes[i]
		if v.Image == nil {
			continue
		}
		for j := range c.VolumeMounts {
			switch {
			case c.VolumeMounts[j].Name != v.Name:
				continue
			case refused:
				m.deeds.imageVolumeErrors.WithLabelValues().Inc()
			default:
				m.deeds.imageVolumesMounted.WithLabelValues().Inc()
			}
			m.deeds.imageVolumes.WithLabelValues().Inc()
		}
	}
}

// RanSandbox tells of the runtime's part in making a sandbox.
func (m *Meter) RanSandbox(handler string, took time.Duration, err error) {
	m.deeds.sandboxDuration.WithLabelValues(handler).Observe(took.Seconds())
	if err != nil {
		m.deeds.sandboxErrors.WithLabelValues(handler).Inc()
	}
}

// Worked tells that a pod's worker had something under way all the time that it took.
func (m *Meter) Worked(operation string, took time.Duration) {
	m.deeds.worker.WithLabelValues(operation).Observe(took.Seconds())
}

// Cgroup tells of an operation of the cgroup manager: create, update or destroy.
func (m *Meter) Cgroup(operation string, took time.Duration) {
	m.deeds.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// CgroupVersion shows the machine's cgroup version.
func (m *Meter) CgroupVersion(unified bool) {
	version := 1.0
	if unified {
		version = 2
	}
	m.deeds.cgroupVersion.WithLabelValues().Set(version)
}

// SleepEnded tells of a sleep hook that was ended before its time, HTTPInstead of one that fell back to HTTP.
func (m *Meter) SleepEnded() { m.deeds.sleepEnded.WithLabelValues().Inc() }

// HTTPInstead tells of a hook that asked for HTTPS and was answered over HTTP.
func (m *Meter) HTTPInstead() { m.deeds.httpInstead.WithLabelValues().Inc() }

// ended counts the containers that have ended between two statuses of a pod; some may run again already.
func (m *Meter) ended(before, after *corev1.PodStatus) {
	m.endedOf(initContainer, before.InitContainerStatuses, after.InitContainerStatuses)
	m.endedOf(container, before.ContainerStatuses, after.ContainerStatuses)
	m.endedOf(ephemeralContainer, before.EphemeralContainerStatuses, after.EphemeralContainerStatuses)
}

func (m *Meter) endedOf(kind string, before, after []corev1.ContainerStatus) {
	for i := range after {
		end := lastEnd(&after[i])
		if end == nil || known(before, after[i].Name, end.ContainerID) {
			continue
		}
		m.deeds.terminated.WithLabelValues(kind, strconv.Itoa(int(end.ExitCode)), end.Reason).Inc()
	}
}

// lastEnd is how the container, or the one in whose place it is, ended; nil if neither has.
func lastEnd(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// known tells whether the statuses tell of that end already.
func known(statuses []corev1.ContainerStatus, name, id string) bool {
	return slices.ContainsFunc(statuses, func(s corev1.ContainerStatus) bool {
		end := lastEnd(&s)
		return s.Name == name && end != nil && end.ContainerID == id
	})
}

// ImageAsked tells of a container's wish for its image; present and pull are nil where that isn't known.
func (m *Meter) ImageAsked(policy corev1.PullPolicy, present, pull *bool) {
	m.deeds.images.WithLabelValues(strings.ToLower(string(policy)), ternary(present), ternary(pull)).Inc()
}

func ternary(b *bool) string {
	if b == nil {
		return "unknown"
	}
	return strconv.FormatBool(*b)
}

// PullChecked tells of the result of a check whether a pod may use an image that is there.
func (m *Meter) PullChecked(result string) { m.deeds.pullChecks.WithLabelValues(result).Inc() }

// PullRecords tells how many records of image pulls there are: of intents, and of pulls that succeeded.
func (m *Meter) PullRecords(intents, pulled int) {
	m.deeds.pullIntents.WithLabelValues().Set(float64(intents))
	m.deeds.pulledRecords.WithLabelValues().Set(float64(pulled))
}

// sizes are the upper ends of the labels by which the kubelet sorts images, in MiB.
var sizes = []struct {
	upTo  uint64
	label string
}{
	{10, "0-10MB"},
	{100, "10MB-100MB"},
	{500, "100MB-500MB"},
	{1 << 10, "500MB-1GB"},
	{5 << 10, "1GB-5GB"},
	{10 << 10, "5GB-10GB"},
	{20 << 10, "10GB-20GB"},
	{30 << 10, "20GB-30GB"},
	{40 << 10, "30GB-40GB"},
	{60 << 10, "40GB-60GB"},
	{100 << 10, "60GB-100GB"},
}

func sizeLabel(bytes uint64) string {
	if bytes == 0 {
		return "N/A"
	}
	for _, s := range sizes {
		if bytes <= s.upTo<<20 {
			return s.label
		}
	}
	return "GT100GB"
}
