package allocation

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestOrder(t *testing.T) {
	now := time.Now()
	waits := func(uid, from, to, limit string, priority int32, since time.Time) Waiting {
		wanted := pod(to, limit)
		wanted.UID, wanted.Spec.Priority = types.UID(uid), &priority
		if limit == to {
			wanted.Spec.InitContainers = nil
			memory := wanted.Spec.Containers[0].Resources
			memory.Requests[corev1.ResourceMemory], memory.Limits[corev1.ResourceMemory] = memory.Requests[corev1.ResourceCPU],
				memory.Requests[corev1.ResourceCPU]
		}
		return Waiting{Wanted: wanted, Held: pod(from, limit), Since: since}
	}
	want := []Waiting{
		waits("shrinks", "3", "1", "4", 0, time.Time{}),
		waits("matters", "1", "2", "4", 10, time.Time{}),
		waits("guaranteed", "1", "2", "2", 0, now),
		waits("waits longest", "1", "2", "4", 0, now.Add(-time.Hour)),
		waits("waits", "1", "2", "4", 0, now),
		waits("is new", "1", "2", "4", 0, time.Time{}),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Order)
	for i := range want {
		if got[i].Wanted.UID != want[i].Wanted.UID {
			t.Errorf("place %d is of %q, want %q", i, got[i].Wanted.UID, want[i].Wanted.UID)
		}
	}
}

func TestMessage(t *testing.T) {
	got := Message("Pod resize error", pod("1", "2"), 3, "too much")
	want := `Pod resize error: {"initContainers":[{"name":"init","resources":{}}],"containers":[{"name":"app","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"1"}}}],"generation":3,"error":"too much"}`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if strings.Contains(Message("x", pod("1", "2"), 1, ""), "error") {
		t.Error("an empty error is left out")
	}
}

func TestRestarts(t *testing.T) {
	c := pod("2", "4").Spec.Containers[0]
	has := pod("1", "4").Spec.Containers[0].Resources
	for _, v := range []struct {
		name   corev1.ResourceName
		policy corev1.ResourceResizeRestartPolicy
		want   bool
	}{
		{corev1.ResourceCPU, corev1.RestartContainer, true},
		{corev1.ResourceCPU, corev1.NotRequired, false},
		{corev1.ResourceMemory, corev1.RestartContainer, false},
	} {
		c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: v.name, RestartPolicy: v.policy}}
		if got := Restarts(&c, &has); got != v.want {
			t.Errorf("%s %s: %v, want %v", v.name, v.policy, got, v.want)
		}
	}
}
