package claims

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
)

// Health says how a device is, and more about it.
type Health func(driver string, d Device) (corev1.ResourceHealthStatus, string)

// Use is a claim that a container uses, for the PodResources API.
type Use struct {
	types.NamespacedName
	Devices []UsedDevice
}

// UsedDevice is a device of such a claim.
type UsedDevice struct {
	Driver string
	Device
}

// part is a claim, or a request of it, that a container uses.
type part struct {
	claim *Claim
	// resource is what the container's status calls it; empty for extended resources, which it doesn't have.
	resource string
	request  string
}

// Containers is what each of the pod's containers gets of the claims that the pod needs; containers that get nothing
// are left out.
func (b Book) Containers(pod *corev1.Pod, needs []Need, health Health) map[string]topic.ContainerAllocation {
	out := map[string]topic.ContainerAllocation{}
	for c := range podspec.InitAndMain(&pod.Spec) {
		var a topic.ContainerAllocation
		for _, p := range b.parts(pod, needs, c) {
			p.into(&a, health)
		}
		slices.SortStableFunc(a.Devices, func(x, y topic.AllocatedDevice) int {
			return cmp.Or(strings.Compare(x.Resource, y.Resource), strings.Compare(x.ID, y.ID))
		})
		if len(a.CDI) > 0 || len(a.Devices) > 0 {
			out[c.Name] = a
		}
	}
	return out
}

// Uses are the claims that each of the pod's containers uses, with all their devices.
func (b Book) Uses(pod *corev1.Pod, needs []Need) map[string][]Use {
	out := map[string][]Use{}
	for c := range podspec.InitAndMain(&pod.Spec) {
		seen := map[*Claim]bool{}
		for _, p := range b.parts(pod, needs, c) {
			if seen[p.claim] {
				continue
			}
			seen[p.claim] = true
			use := Use{NamespacedName: p.claim.NamespacedName}
			for _, driver := range p.claim.DriverNames() {
				for _, d := range p.claim.Drivers[driver].Devices {
					use.Devices = append(use.Devices, UsedDevice{driver, d})
				}
			}
			out[c.Name] = append(out[c.Name], use)
		}
	}
	return out
}

// parts are what the container uses, in the order of its spec.
func (b Book) parts(pod *corev1.Pod, needs []Need, c *corev1.Container) []part {
	var parts []part
	find := func(n Need) *Claim { return b[types.NamespacedName{Namespace: pod.Namespace, Name: n.Claim}] }
	for _, use := range c.Resources.Claims {
		i := slices.IndexFunc(needs, func(n Need) bool { return n.PodClaim == use.Name && use.Name != "" })
		if i < 0 || find(needs[i]) == nil {
			continue
		}
		p := part{claim: find(needs[i]), resource: topic.ClaimPrefix + use.Name, request: use.Request}
		if use.Request != "" {
			p.resource += "/" + use.Request
		}
		parts = append(parts, p)
	}
	s := extended(pod)
	i := slices.IndexFunc(needs, func(n Need) bool { return n.PodClaim == "" })
	if s == nil || i < 0 || find(needs[i]) == nil {
		return parts
	}
	for _, m := range s.RequestMappings {
		wants := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		if m.ContainerName == c.Name && !wants.IsZero() && m.RequestName != "" {
			parts = append(parts, part{claim: find(needs[i]), request: m.RequestName})
		}
	}
	return parts
}

// into adds the part's devices to what a container gets.
func (p part) into(a *topic.ContainerAllocation, health Health) {
	for _, driver := range p.claim.DriverNames() {
		for _, d := range p.claim.Drivers[driver].Devices {
			if !d.serves(p.request) {
				continue
			}
			for _, name := range d.CDI {
				if !slices.Contains(a.CDI, name) {
					a.CDI = append(a.CDI, name)
				}
			}
			if p.resource == "" {
				continue
			}
			entry := topic.AllocatedDevice{Resource: p.resource, ID: d.id(driver)}
			same := func(o topic.AllocatedDevice) bool { return o.Resource == entry.Resource && o.ID == entry.ID }
			if slices.ContainsFunc(a.Devices, same) {
				continue
			}
			entry.Health, entry.HealthMessage = health(driver, d)
			a.Devices = append(a.Devices, entry)
		}
	}
}

// serves reports whether the device is for the request. Which of several alternatives was chosen, the part after a
// slash, doesn't matter.
func (d Device) serves(request string) bool {
	if request == "" || len(d.Requests) == 0 {
		return true
	}
	return slices.ContainsFunc(d.Requests, func(r string) bool { return base(r) == base(request) })
}

func base(request string) string {
	name, _, _ := strings.Cut(request, "/")
	return name
}

// id is the device's name in a container's status.
func (d Device) id(driver string) string {
	if len(d.CDI) > 0 {
		return d.CDI[0]
	}
	return fmt.Sprintf("%s/%s/%s", driver, d.Pool, d.Name)
}
