package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/admission/allocation"
)

// podMetrics are those of the pods as a whole, which the dispatcher records.
type podMetrics struct {
	desired, active, mirror, working, ephemeral, pendingResizes, resizing *prometheus.GaugeVec

	orphaned, restarted, rejections, preemptions, requestedResizes, deferredAccepted, infeasible *prometheus.CounterVec
	containers                                                                                   *prometheus.HistogramVec
}

func newPodMetrics(f *factory) *podMetrics {
	p := &podMetrics{
		desired: f.gauge("kubelet_desired_pods", "Pods that the sources want here; static is true for those that "+
			"aren't the API server's.", "static"),
		active: f.gauge("kubelet_active_pods", "Pods that were admitted and haven't ended, which admission counts; "+
			"static is true for those that aren't the API server's.", "static"),
		mirror: f.gauge("kubelet_mirror_pods", "Mirror pods that there should be: one for each admitted static pod."),
		working: f.gauge("kubelet_working_pods", "Pods with a worker by their lifecycle, by whether a source wants "+
			"them, and by whether they are static.", "lifecycle", "config", "static"),
		ephemeral:      f.gauge("kubelet_managed_ephemeral_containers", "Ephemeral containers in the pods of this node."),
		pendingResizes: f.gauge("kubelet_pod_pending_resizes", "Pods whose resize waits, by the reason.", "reason"),
		resizing:       f.gauge("kubelet_pod_in_progress_resizes", "Pods whose resize is under way."),
		orphaned: f.counter("kubelet_orphaned_runtime_pods_total",
			"Pods found in the runtime that no source wants and no worker knew of."),
		restarted: f.counter("kubelet_restarted_pods_total", "Pods that came again with the same UID while they were "+
			"being ended.", "static"),
		rejections: f.counter("kubelet_admission_rejections_total", "Pods that weren't admitted, by the reason.",
			"reason"),
		preemptions: f.counter("kubelet_preemptions",
			"Pods ended to make room for a critical one, by the resource that it lacked.", "preemption_signal"),
		requestedResizes: f.counter("kubelet_container_requested_resizes_total",
			"Changes of resources asked for by container, resource (cpu or memory), "+
				"requirement (requests or limits) and operation (add, remove, increase or decrease).", "resource",
			"requirement", "operation"),
		deferredAccepted: f.counter("kubelet_pod_deferred_accepted_resizes_total",
			"Resizes that were granted after they had been put off, by what gave them their turn.", "retry_trigger"),
		infeasible: f.counter("kubelet_pod_infeasible_resizes_total", "Resizes that can't be, by the reason.",
			"reason_detail"),
		containers: f.histogram("kubelet_containers_per_pod_count", "Containers per pod.",
			prometheus.ExponentialBuckets(1, 2, 5)),
	}
	for _, yes := range []bool{false, true} {
		p.restarted.WithLabelValues(static(yes))
	}
	return p
}

// PodCounts are the pods at one moment.
type PodCounts struct {
	// Desired and Active are counted by whether the pod is static.
	Desired, Active map[bool]int
	Mirrors         int
	Working         map[Work]int
	Ephemeral       int
	// PendingResizes are counted by the reason of the condition.
	PendingResizes map[string]int
	Resizing       int
}

// Work is in which state a pod's worker is.
type Work struct {
	// Lifecycle is one of Sync, Terminating and Terminated.
	Lifecycle string
	// Config is one of Desired, Orphan and RuntimeOnly.
	Config string
	Static bool
}

// Values of Work.
const (
	Sync        = "sync"
	Terminating = "terminating"
	Terminated  = "terminated"
	Desired     = "desired"
	Orphan      = "orphan"
	RuntimeOnly = "runtime_only"
)

// Count shows the pods as they are now.
func (p *podMetrics) Count(c PodCounts) {
	for _, yes := range []bool{false, true} {
		p.desired.WithLabelValues(static(yes)).Set(float64(c.Desired[yes]))
		p.active.WithLabelValues(static(yes)).Set(float64(c.Active[yes]))
	}
	p.mirror.WithLabelValues().Set(float64(c.Mirrors))
	for _, lifecycle := range []string{Sync, Terminating, Terminated} {
		for _, config := range []string{Desired, Orphan} {
			for _, yes := range []bool{false, true} {
				p.working.WithLabelValues(lifecycle, config, static(yes)).Set(float64(c.Working[Work{lifecycle, config, yes}]))
			}
		}
		p.working.WithLabelValues(lifecycle, RuntimeOnly,
			"unknown").Set(float64(c.Working[Work{lifecycle, RuntimeOnly, false}]))
	}
	p.ephemeral.WithLabelValues().Set(float64(c.Ephemeral))
	p.pendingResizes.Reset()
	for reason, n := range c.PendingResizes {
		p.pendingResizes.WithLabelValues(strings.ToLower(reason)).Set(float64(n))
	}
	p.resizing.WithLabelValues().Set(float64(c.Resizing))
}

// Orphaned records a pod that only the runtime knew.
func (p *podMetrics) Orphaned() { p.orphaned.WithLabelValues().Inc() }

// Restarted records a pod that came again with the same UID.
func (p *podMetrics) Restarted(isStatic bool) { p.restarted.WithLabelValues(static(isStatic)).Inc() }

// rejections are the reasons that the kubelet knows; the resource names behind OutOf are the cluster's, of which
// there may be many.
var rejections = map[string]bool{
	"AppArmor": true, "PodOSSelectorNodeLabelDoesNotMatch": true, "PodOSNotSupported": true, "InvalidNodeInfo": true,
	"SupplementalGroupsPolicyNotSupported": true, "UnexpectedAdmissionError": true, "OutOfcpu": true, "OutOfmemory": true,
	"OutOfephemeral-storage": true, "OutOfpods": true, "Evicted": true, "SysctlForbidden": true,
	"node(s) had taints that the pod didn't tolerate": true, "PodFeatureUnsupported": true, "NodeShutdown": true,
	"TopologyAffinityError": true, "VolumeAttachmentLimitExceeded": true,
}

// Rejected records a pod that wasn't admitted.
func (p *podMetrics) Rejected(reason string) {
	switch {
	case rejections[reason]:
	case strings.HasPrefix(reason, "OutOf"):
		reason = "OutOfExtendedResources"
	default:
		reason = "Other"
	}
	p.rejections.WithLabelValues(reason).Inc()
}

// Preempted records a pod that made room; resource is what was lacking.
func (p *podMetrics) Preempted(resource string) { p.preemptions.WithLabelValues(resource).Inc() }

// Why a resize that was put off is tried again, in the words of the kubelet's metric.
const (
	PodUpdated  = "pod_updated"
	PodsRemoved = "pods_removed"
)

// DeferredAccepted records a resize that was granted after it had been put off.
func (p *podMetrics) DeferredAccepted(trigger string) {
	p.deferredAccepted.WithLabelValues(trigger).Inc()
}

// Infeasible records a request for resources that can't be met while the pod runs.
func (p *podMetrics) Infeasible(detail string) { p.infeasible.WithLabelValues(detail).Inc() }

// ResizeAsked records the requests of the pod's containers for other resources than the pod had before.
func (p *podMetrics) ResizeAsked(before, wanted *corev1.Pod) {
	for c := range podspec.InitAndMain(&wanted.Spec) {
		has := allocation.Of(before, c.Name)
		if has == nil {
			continue
		}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			p.resizeAsked(name, "requests", has.Requests[name], c.Resources.Requests[name])
			p.resizeAsked(name, "limits", has.Limits[name], c.Resources.Limits[name])
		}
	}
}

func (p *podMetrics) resizeAsked(name corev1.ResourceName, requirement string, before, wanted resource.Quantity) {
	var operation string
	switch {
	case wanted.Cmp(before) == 0:
		return
	case wanted.IsZero():
		operation = "remove"
	case before.IsZero():
		operation = "add"
	case wanted.Cmp(before) < 0:
		operation = "decrease"
	default:
		operation = "increase"
	}
	p.requestedResizes.WithLabelValues(string(name), requirement, operation).Inc()
}
