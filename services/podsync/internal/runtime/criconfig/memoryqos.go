package criconfig

import (
	"maps"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/podsync/internal/node/qos"
)

// fileHigh is the file of cgroup v2 with the memory above which the kernel throttles a container.
const fileHigh = "memory.high"

// MemoryQoS is how the memory of containers is protected and throttled.
//
// Source: KEP-2570 as in Kubernetes 1.36.
type MemoryQoS struct {
	// On is the feature gate MemoryQoS on a machine with cgroup v2.
	On bool
	// Tiered is memoryReservationPolicy TieredReservation: what containers request is protected.
	Tiered bool
	// Throttling is memoryThrottlingFactor: the part of what is between a container's request and its limit, or
	// Allocatable where it has none, that it may use without being throttled.
	Throttling float64
	// Allocatable is the machine's memory less what is reserved, in bytes.
	Allocatable int64
}

// setMemoryQoS protects what the container requests, and throttles it where it comes near its limit.
func setMemoryQoS(node *Node, r *runtimeapi.LinuxContainerResources, pod *corev1.Pod, container *corev1.Container) {
	q := node.MemoryQoS
	if !q.On {
		return
	}
	if r.Unified == nil {
		r.Unified = map[string]string{}
	}
	request, limit := container.Resources.Requests.Memory().Value(), container.Resources.Limits.Memory().Value()
	if protection := qos.Protection(podspec.QOSClass(pod), request); q.Tiered && protection != nil {
		maps.Copy(r.Unified, protection)
	} else {
		r.Unified[qos.MemoryMin], r.Unified[qos.MemoryLow] = "0", "0"
	}
	if high := q.high(request, limit); high > request {
		r.Unified[fileHigh] = strconv.FormatInt(high, 10)
	}
}

// high is from which use of memory on a container is throttled, in whole pages; 0 for one with equal request and limit,
// and where the limit isn't known.
func (q MemoryQoS) high(request, limit int64) int64 {
	most := limit
	if most == 0 {
		most = q.Allocatable
	}
	if request == limit || most <= 0 {
		return 0
	}
	page := int64(os.Getpagesize())
	return int64((float64(request)+float64(most-request)*q.Throttling)/float64(page)) * page
}
