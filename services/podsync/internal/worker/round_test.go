package worker

import (
	"slices"
	"testing"
	"testing/synctest"

	"kubelot.dev/bus/topic"
)

// A pod's rounds are told apart by what they are for, and what is done side by side or at once after it is one.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, r := launch(t, Config{Pod: testPod()}, topic.PodObservation{}, &fakeExecutor{})
		settle()
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeMounted})
		settle()
		w.Remove()
		settle()
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		settle()
		r.mu.Lock()
		defer r.mu.Unlock()
		if want := []string{"create", "sync", "kill", "terminated"}; !slices.Equal(r.rounds, want) {
			t.Errorf("the rounds were %v, want %v", r.rounds, want)
		}
	})
}
