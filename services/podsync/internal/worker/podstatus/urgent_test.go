package podstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestUrgent(t *testing.T) {
	waiting := func(reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}},
		}}
	}
	withAddress := waiting("ContainerCreating")
	withAddress.PodIP = "10.0.0.2"
	withAddress.Conditions = []corev1.PodCondition{{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue}}
	running := waiting("")
	running.Phase = corev1.PodRunning
	running.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	disrupted := *running.DeepCopy()
	disrupted.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
	restarted := *running.DeepCopy()
	restarted.ContainerStatuses[0].RestartCount = 1

	for name, c := range map[string]struct {
		before, after corev1.PodStatus
		want          bool
	}{
		"the first status of a pod that starts": {
			corev1.PodStatus{Phase: corev1.PodPending},
			waiting("ContainerCreating"), false,
		},
		"the sandbox has its address":  {waiting("ContainerCreating"), withAddress, false},
		"init containers are through":  {waiting("PodInitializing"), waiting("ContainerCreating"), false},
		"a pull fails":                 {waiting("ContainerCreating"), waiting("ErrImagePull"), true},
		"a failed pull is tried again": {waiting("ErrImagePull"), waiting("ContainerCreating"), true},
		"it runs":                      {withAddress, running, true},
		"it runs again":                {running, restarted, true},
		"it is to be evicted":          {running, disrupted, true},
		"a pod that failed admission": {
			corev1.PodStatus{Phase: corev1.PodPending},
			corev1.PodStatus{Phase: corev1.PodFailed},
			true,
		},
	} {
		if got := Urgent(c.before, c.after); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
