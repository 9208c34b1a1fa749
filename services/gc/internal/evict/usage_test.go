package evict

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Figures are complete where there are some of after the moment; a layer of no bytes at no time was never counted, also
// if any age will do.
func TestComplete(t *testing.T) {
	since := epoch
	figures := func(bytes uint64, at time.Time) *statsv1alpha1.FsStats {
		return &statsv1alpha1.FsStats{Time: metav1.NewTime(at), UsedBytes: &bytes}
	}
	for name, c := range map[string]struct {
		layer      *statsv1alpha1.FsStats
		now, later bool // whether it is complete, and whether it is where any age will do
	}{
		"of the moment":      {figures(0, since.Add(time.Second)), true, true},
		"older":              {figures(1, since.Add(-time.Second)), false, true},
		"missing":            {nil, false, false},
		"not counted":        {figures(0, time.Unix(0, 0)), false, false},
		"not counted at all": {&statsv1alpha1.FsStats{}, false, false},
		"of an unknown time": {figures(1, time.Unix(0, 0)), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			logs := figures(1, since.Add(time.Second))
			pod := Candidate{
				Pod: &corev1.Pod{},
				Stats: &statsv1alpha1.PodStats{Containers: []statsv1alpha1.ContainerStats{{
					Name:   "app",
					Rootfs: c.layer, Logs: logs,
				}}},
			}
			if got := measured(NodeFSAvailable, Layout{}, pod, since); got != c.now {
				t.Errorf("complete: %v, want %v", got, c.now)
			}
			if got := measured(NodeFSAvailable, Layout{}, pod, time.Time{}); got != c.later {
				t.Errorf("complete where any age will do: %v, want %v", got, c.later)
			}
		})
	}
}
