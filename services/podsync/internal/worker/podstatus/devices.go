package podstatus

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// setDevices sets the health of the devices of regular containers (KEP-4680). The devices are in the order of their
// resources. A pod that has ended has none any more: what was known of them may be why it has failed, and stays. It
// also stays as long as it isn't known what the pod has, as after a restart.
func setDevices(statuses []corev1.ContainerStatus, in Input) {
	for i := range statuses {
		for _, d := range in.Allocation.Containers[statuses[i].Name].Devices {
			addDevice(&statuses[i], d)
		}
		last := find(in.Previous.ContainerStatuses, statuses[i].Name)
		if (in.Ending || in.AllocationUnknown) && last != nil && len(in.Allocation.Containers) == 0 {
			statuses[i].AllocatedResourcesStatus = last.AllocatedResourcesStatus
		}
	}
}

func addDevice(status *corev1.ContainerStatus, d topic.AllocatedDevice) {
	health := corev1.ResourceHealth{
		ResourceID: corev1.ResourceID(d.ID), Health: cmp.Or(d.Health, corev1.ResourceHealthStatusUnknown),
	}
	if d.HealthMessage != "" {
		health.Message = &d.HealthMessage
	}
	list := &status.AllocatedResourcesStatus
	if n := len(*list); n == 0 || (*list)[n-1].Name != corev1.ResourceName(d.Resource) {
		*list = append(*list, corev1.ResourceStatus{Name: corev1.ResourceName(d.Resource)})
	}
	last := &(*list)[len(*list)-1]
	last.Resources = append(last.Resources, health)
}
