package resource

import (
	"log/slog"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/deviceplugin"
)

// publisher says on the bus what pods have, and the node.
type publisher struct {
	holdings *holdings
	plugins  Plugins
	// claimless is true where there is no API server, so that nothing becomes of claims.
	claimless bool
	log       *slog.Logger
	// unpinned says that containers may be kept to CPUs or NUMA nodes though the policy that did it is off.
	unpinned struct{ cpus, memory bool }
	// leftover are devices that the Node has of an earlier agent.
	leftover []corev1.ResourceName
	// unregistrable is why device plugins can't register; empty where they can.
	unregistrable string

	allocations *bus.Writer[topic.Allocation]
	node        *bus.Writer[topic.NodeResources]
	stated      *topic.NodeResources
}

// publish says what is new of the node and of its pods. In a burst, what the other pods have isn't found out each time.
func (b *publisher) publish(pods map[string]*pod, now time.Time) {
	if node := b.nodeResources(now); b.stated == nil || !reflect.DeepEqual(node, *b.stated) {
		if err := b.node.Set("", node); err != nil {
			b.log.Error("can't put the node's devices on the bus", "error", err)
		} else {
			b.stated = &node
		}
	}
	for uid, p := range pods {
		if !p.changed {
			continue
		}
		a := b.allocation(uid, p)
		// What an earlier process has said is said again: podsync may have lost it since.
		if p.stated != nil && reflect.DeepEqual(a, *p.stated) || regresses(p.last(), a.Phase) {
			p.changed = false
			continue
		}
		if err := b.allocations.Set(uid, a); err != nil {
			b.log.Error("can't put an allocation on the bus", "pod", a.Name, "namespace", a.Namespace, "uid", uid, "error", err)
			continue
		}
		p.stated, p.changed = &a, false
	}
}

// regresses reports whether a pod would seem to wait for what it has had: after a restart everything is found out
// again.
func regresses(from, to topic.AllocationPhase) bool {
	return from == topic.Allocated && to == topic.Allocating
}

// forget takes off the bus what was said of a pod that is gone.
func (b *publisher) forget(uid string) {
	if err := b.allocations.Delete(uid); err != nil {
		b.log.Error("can't take an allocation off the bus", "uid", uid, "error", err)
	}
}

// nodeResources is what the Node has of devices, and which CPUs are shared.
func (b *publisher) nodeResources(now time.Time) topic.NodeResources {
	r := topic.NodeResources{SharedCPUs: b.holdings.cpus.Shared().String(), RegistrationError: b.unregistrable}
	if b.unpinned.cpus {
		r.SharedCPUs = b.holdings.cpus.All().String()
	}
	if b.unpinned.memory {
		r.SharedMemoryNodes = cpuset.New(b.holdings.remembering...).String()
	}
	capacity := b.holdings.devices.Capacity(now)
	for name, n := range capacity.Devices {
		if r.Devices == nil {
			r.Devices = map[corev1.ResourceName]topic.DeviceCount{}
		}
		r.Devices[corev1.ResourceName(name)] = topic.DeviceCount{Capacity: n.Capacity, Allocatable: n.Allocatable}
	}
	for _, name := range capacity.Gone {
		r.Gone = append(r.Gone, corev1.ResourceName(name))
	}
	for _, name := range b.leftover {
		if _, known := r.Devices[name]; !known && !slices.Contains(r.Gone, name) {
			r.Gone = append(r.Gone, name)
		}
	}
	slices.Sort(r.Gone)
	return r
}

// allocation is how far the pod's allocation is.
func (b *publisher) allocation(uid string, p *pod) topic.Allocation {
	a := topic.Allocation{Ref: topic.RefOf(p.spec), Claims: !b.claimless && p.wantsClaims()}
	switch {
	case p.ended() && (b.claimless || p.gaveBack()):
		a.Phase = topic.AllocationReleased
	case p.ended():
		a.Phase, a.Message = topic.Allocated, "waiting for its claims of devices to be given back"
		p.because(&a)
	case p.refused != nil:
		a.Phase, a.Reason, a.Message = topic.AllocationRefused, p.refused.reason, p.refused.message
	case !p.assigned:
		a.Phase, a.Message = topic.Allocating, p.waiting
	case !p.prepared():
		a.Phase, a.Message = topic.Allocating, "waiting for its claims of devices to be prepared"
		p.because(&a)
	default:
		a.Phase = topic.Allocated
	}
	if !p.ended() {
		// In each phase: its containers may run, and must leave the CPUs that others have alone.
		a.Containers = b.containerAllocations(uid, p)
	}
	return a
}

// because adds what the pod's claims wait for.
func (p *pod) because(a *topic.Allocation) {
	if p.claims != nil && p.claims.Message != "" {
		a.Reason, a.Message = p.claims.Reason, p.claims.Message
	}
}

// containerAllocations are what the pod's containers have.
func (b *publisher) containerAllocations(uid string, p *pod) map[string]topic.ContainerAllocation {
	all, assigned := map[string]topic.ContainerAllocation{}, b.holdings.devices.Assigned(uid)
	for c := range podspec.InitAndMain(&p.spec.Spec) {
		a := b.answers(uid, c.Name, p)
		if p.claims != nil {
			claimed := p.claims.Containers[c.Name]
			a.CDI, a.Devices = append(a.CDI, claimed.CDI...), claimed.Devices
		}
		if cpus, exclusive := b.holdings.cpus.Exclusive(types.UID(uid), c.Name); exclusive {
			a.CPUs = cpus.String()
		}
		a.MemoryNodes = cpuset.New(b.holdings.memory.MemoryNodes(uid, c.Name)...).String()
		before := p.toldBefore(c.Name)
		plugins := make([]topic.AllocatedDevice, 0, len(assigned[c.Name])+len(a.Devices))
		for _, d := range assigned[c.Name] {
			health := corev1.ResourceHealthStatusHealthy
			if !d.Healthy {
				health = corev1.ResourceHealthStatusUnhealthy
			}
			plugins = append(plugins, topic.AllocatedDevice{Resource: d.Resource, ID: d.ID, Health: health})
			a.PreStart = a.PreStart || b.needsPreStart(d.Resource, before)
		}
		// Memory of init containers that have ended goes on to the next one.
		a.PreStart = a.PreStart || a.MemoryNodes != "" && len(p.spec.Spec.InitContainers) > 0
		if a.Devices = append(plugins, a.Devices...); len(a.Devices) == 0 {
			a.Devices = nil
		}
		if !reflect.DeepEqual(a, topic.ContainerAllocation{}) {
			all[c.Name] = a
		}
	}
	return all
}

// needsPreStart reports whether the plugin must be told of the container's start. before is what an earlier process has
// said of the container. It counts until the plugin is back.
func (b *publisher) needsPreStart(resource string, before bool) bool {
	options, known := b.plugins.Options(resource)
	return options.PreStart || before && !known
}

// toldBefore reports whether an earlier process has told plugins of the container's starts. Where it may have been told
// of them for the container's memory only, a plugin that isn't back holds up nothing, as in the kubelet.
func (p *pod) toldBefore(container string) bool {
	if p.before == nil {
		return false
	}
	said := p.before.Containers[container]
	return said.PreStart && (said.MemoryNodes == "" || len(p.spec.Spec.InitContainers) == 0)
}

// answers are what plugins have answered about the container's devices. That they contradict each other is logged once.
func (b *publisher) answers(uid, container string, p *pod) topic.ContainerAllocation {
	var a topic.ContainerAllocation
	conflicts, err := deviceplugin.Merge(&a, b.holdings.devices.Answers(uid, container))
	if (err != nil || len(conflicts) > 0) && !p.contradicted[container] {
		b.log.Warn("device plugins contradict each other, the first counts", "uid", uid, "container", container,
			"about", conflicts, "error", err)
		if p.contradicted == nil {
			p.contradicted = map[string]bool{}
		}
		p.contradicted[container] = true
	}
	return a
}
