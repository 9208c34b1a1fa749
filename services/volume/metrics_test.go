package volume

import (
	"testing"

	"kubelot.dev/bus/topic"
)

// metric compares the sum of a family's values, or observations.
func (w *world) metric(name string, want float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		if sum != want {
			w.t.Errorf("%s is %v, want %v", name, sum, want)
		}
		return
	}
	w.t.Errorf("there is no %s, want it to be %v", name, want)
}

func TestVolumesAreCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		w.start()
		w.ready("u1")
		w.update(podSpec("u1", emptyDir("scratch", "")), topic.Syncing)
		w.rest()
		w.metric("volume_manager_total_volumes", 2) // one, as it is wanted and as it is
		w.metric("storage_operation_duration_seconds", 1)
		w.metric("volume_operation_total_seconds", 1)
		w.metric("kubelet_orphan_pod_cleaned_volumes", 0)
		w.metric("kubelet_orphan_pod_cleaned_volumes_errors", 0)
		// What has ended stays a pod until somebody deletes it, and wants nothing.
		w.update(podSpec("u1", emptyDir("scratch", "")), topic.Terminated)
		w.rest()
		w.metric("volume_manager_total_volumes", 0)
	})
}
