package resource

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/metrics"
	"kubelot.dev/services/resource/internal/numa"
)

// holdings are who has what of the node. They belong to the goroutine of the loop, and do no I/O.
type holdings struct {
	policy   numa.Policy
	policies policies
	// nodes are the machine's NUMA nodes, of which remembering have memory.
	nodes, remembering []int
	cpus               *cpus.State
	memory             *memory.State
	devices            *devices.Book
	// untold is true where nobody has left which resources of the Node are devices.
	untold bool
	// metrics counts what is done; nil for nothing. tally counts what the last reserve has done. It is for the attempt
	// that decides about the pod: there may be many.
	metrics *metrics.Metrics
	tally   []func()
}

// reserve keeps devices for a pod's containers and gives them their CPUs and their memory, for one after the other. A
// pod that is aligned as a whole is aligned once: what its first container has got by then says nothing about all of
// it. The error refuses the pod; then nothing is kept.
func (h *holdings) reserve(pod *corev1.Pod) (r *devices.Reservation, err error) {
	r, h.tally = h.devices.Reserve(), nil
	var near numa.Hint
	aligned := false
	for c := range podspec.InitAndMain(&pod.Spec) {
		if !aligned || !h.policy.PerPod() {
			near, err = h.affinity(pod, c)
			aligned = true
		}
		if err == nil {
			err = h.share(pod, c, near, r)
		}
		if err != nil {
			r.Drop()
			break
		}
	}
	return r, err
}

// arrives counts a pod that nobody has told of before; news is false for those of which the bus tells at the start. One
// that podsync has refused because the node is too small counts as the kubelet counts it, which lets the pod try to get
// what it asks for first.
func (h *holdings) arrives(v topic.Pod, news bool) {
	small := news && v.Allocates && strings.HasPrefix(v.Refused, "OutOf") && !h.pods()[string(v.Pod.UID)]
	if v.Lifecycle != topic.Syncing && !small {
		return
	}
	h.metrics.Requested()
	if !v.Allocates || small {
		h.metrics.Took(0)
	}
	if small {
		h.tryOnly(v.Pod)
	}
}

// tryOnly counts what would come of a pod that can't run here and has nothing. It keeps nothing.
func (h *holdings) tryOnly(pod *corev1.Pod) {
	r, err := h.reserve(pod)
	r.Drop()
	h.release(string(pod.UID))
	for _, count := range h.tally {
		count()
	}
	if err == nil {
		h.got(pod)
	} else {
		h.metrics.Refused(h.policy)
	}
}

// share keeps the devices for a container that it doesn't have, and gives it its CPUs and its memory, near to them.
// What is asked first is told and counted where more than one is missing: the order is the kubelet's. It may be called
// again for a container that has them already. The error refuses the pod.
func (h *holdings) share(pod *corev1.Pod, c *corev1.Container, affinity numa.Hint, r *devices.Reservation) error {
	for _, q := range h.needs(pod, c, affinity) {
		if err := r.Keep(q); err != nil {
			return err
		}
	}
	if err := h.pin(pod, c, affinity.Nodes); err != nil {
		return err
	}
	near := memory.Hint{Nodes: affinity.Nodes.Nodes(), Preferred: affinity.Preferred}
	blocks, err := h.memory.Allocate(pod, c, near)
	if err != nil || len(blocks) > 0 {
		h.tally = append(h.tally, func() { h.metrics.Remembered(err == nil) })
	}
	return err
}

// pin gives a container its CPUs. One that has had them, as after a restart, counts too, as with the kubelet.
func (h *holdings) pin(pod *corev1.Pod, c *corev1.Container, near numa.Mask) error {
	_, had := h.cpus.Exclusive(pod.UID, c.Name)
	has, err := h.cpus.Allocate(pod, c, near)
	if err == nil && has.IsEmpty() {
		return nil
	}
	aligned := !had && h.cpus.OneCache(has)
	h.tally = append(h.tally, func() { h.metrics.Pinned(err == nil, h.cpus.FullCores(), aligned) })
	return err
}

// needs are the devices that the container wants and doesn't have.
func (h *holdings) needs(pod *corev1.Pod, c *corev1.Container, affinity numa.Hint) (requests []devices.Request) {
	has := map[string]bool{}
	for _, d := range h.devices.Assigned(string(pod.UID))[c.Name] {
		has[d.Resource] = has[d.Resource] || !d.Stale
	}
	for _, need := range h.devices.Needs(pod) {
		if need.Container != c.Name || has[need.Resource] {
			continue
		}
		q := devices.Request{Pod: pod, Need: need}
		if affinity.Nodes != 0 {
			q.Affinity = affinity.Nodes.Nodes()
		}
		requests = append(requests, q)
	}
	return requests
}

// affinity is the NUMA nodes from which the container is to have everything.
func (h *holdings) affinity(pod *corev1.Pod, c *corev1.Container) (numa.Hint, error) {
	if h.policy.Name() == numa.PolicyNone {
		return numa.Hint{}, nil
	}
	providers := []numa.ProviderHints{
		hints(h.devices.Hints(pod, c.Name, h.nodes)), h.cpus.Hints(pod, c), hints(h.memory.Hints(pod, c)),
	}
	if h.policy.PerPod() {
		providers = []numa.ProviderHints{
			hints(h.devices.PodHints(pod, h.nodes)), h.cpus.PodHints(pod), hints(h.memory.PodHints(pod)),
		}
	}
	affinity, admit := numa.Merge(h.policy, providers)
	if !admit {
		h.tally = append(h.tally, func() { h.metrics.Aligned(h.policy, false) })
		for _, need := range h.devices.Needs(pod) { // the pod may be one that waits for its plugin
			if len(h.devices.Allocatable()[need.Resource]) == 0 {
				return affinity, fmt.Errorf("%w: %w %s", numa.AffinityError{}, devices.ErrUnhealthy, need.Resource)
			}
		}
		return affinity, numa.AffinityError{}
	}
	return affinity, nil
}

// got counts that the pod has all that it asked for: as a whole, or each of its containers.
func (h *holdings) got(pod *corev1.Pod) {
	for range podspec.InitAndMain(&pod.Spec) {
		h.metrics.Aligned(h.policy, true)
		if h.policy.PerPod() {
			return
		}
	}
}

// hints converts hints. No preference (nil) and no possibility (an empty list) stay what they are.
func hints[K ~string, H devices.Hint | memory.Hint](all map[K][]H) numa.ProviderHints {
	converted := numa.ProviderHints{}
	for name, list := range all {
		var to []numa.Hint
		if list != nil {
			to = make([]numa.Hint, 0, len(list))
		}
		for _, one := range list {
			h := devices.Hint(one)
			to = append(to, numa.Hint{Nodes: numa.NewMask(h.Nodes...), Preferred: h.Preferred})
		}
		converted[string(name)] = to
	}
	return converted
}

// release takes everything from a pod, and reports whether it had anything.
func (h *holdings) release(uid string) bool {
	had := h.devices.Release(uid)
	had = h.cpus.Release(types.UID(uid)).Size() > 0 || had
	return h.memory.Release(uid) || had
}

// pods are the UIDs of those that have something.
func (h *holdings) pods() map[string]bool {
	pods := map[string]bool{}
	for _, uid := range slices.Concat(h.devices.Pods(), h.memory.Pods()) {
		pods[uid] = true
	}
	for uid := range h.cpus.Entries() {
		pods[string(uid)] = true
	}
	return pods
}
