package tap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/words"
)

func describeAllocation(_ string, now topic.Allocation, before *topic.Allocation) (string, bool) {
	var earlier *topic.AllocationPhase
	if before != nil {
		earlier = &before.Phase
	}
	parts := []string{change(earlier, now.Phase)}
	urgent := now.Phase == topic.AllocationRefused
	for _, name := range slices.Sorted(maps.Keys(now.Containers)) {
		text, ill := allocated(now.Containers[name])
		if text != "" {
			parts = append(parts, name+" has "+text)
		}
		urgent = urgent || ill
	}
	text := strings.Join(parts, ", ")
	if why := strings.TrimSpace(now.Reason + " " + now.Message); why != "" {
		text += ": " + why
	}
	return text, urgent
}

// allocated is what a container has for itself. ill reports whether one of its devices is unhealthy.
func allocated(c topic.ContainerAllocation) (text string, ill bool) {
	var parts []string
	if c.CPUs != "" {
		parts = append(parts, "CPUs "+c.CPUs)
	}
	if c.MemoryNodes != "" {
		parts = append(parts, "memory of node "+c.MemoryNodes)
	}
	for _, d := range c.Devices {
		text := d.Resource + " " + d.ID
		if d.Health == corev1.ResourceHealthStatusUnhealthy {
			text += " (" + strings.TrimSpace("unhealthy "+d.HealthMessage) + ")"
			ill = true
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " and "), ill
}

func describeResources(_ string, now topic.NodeResources, _ *topic.NodeResources) (string, bool) {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(now.Devices)) {
		count := now.Devices[name]
		parts = append(parts, fmt.Sprintf("%s: %d of %d allocatable", name, count.Allocatable, count.Capacity))
	}
	if n := len(now.Gone); n > 0 {
		parts = append(parts, words.Plural(n, "resource")+" gone")
	}
	if now.RegistrationError != "" {
		parts = append(parts, "device plugins can't register: "+now.RegistrationError)
	}
	if now.SharedCPUs != "" {
		parts = append(parts, "containers share the CPUs "+now.SharedCPUs)
	}
	if len(parts) == 0 {
		return "no devices of plugins, and no exclusive CPUs", false
	}
	return strings.Join(parts, ", "), false
}
