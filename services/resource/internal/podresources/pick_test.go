package podresources

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

func TestActive(t *testing.T) {
	final := []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}
	for _, phase := range []corev1.PodPhase{
		"", corev1.PodPending, corev1.PodRunning, corev1.PodUnknown, corev1.PodSucceeded, corev1.PodFailed,
	} {
		for lifecycle, want := range map[topic.Lifecycle]bool{
			topic.Syncing:     !slices.Contains(final, phase), // such a pod was refused, or is about to be ended
			topic.Terminating: true,
			topic.Terminated:  false,
		} {
			p := Pod{Update: topic.Pod{Lifecycle: lifecycle}, Phase: phase}
			if got := p.active(); got != want {
				t.Errorf("a %s pod in phase %q is active: %t, want %t", lifecycle, phase, got, want)
			}
		}
	}
}

func TestContainers(t *testing.T) {
	p := pod("default", "web", "init-a", "side-b", "init-c", "side-d", "app-e", "app-f")
	never := corev1.ContainerRestartPolicyNever
	p.Update.Pod.Spec.InitContainers[2].RestartPolicy = &never
	// An app container may have the policy too (KEP-5307).
	p.Update.Pod.Spec.Containers[0].RestartPolicy = &never
	p.Update.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"},
	}}
	if got, want := p.containers(), []string{"side-b", "side-d", "app-e", "app-f"}; !slices.Equal(got, want) {
		t.Errorf("the containers are %v, want %v", got, want)
	}
}

// TestFind has pods of one name: the API server may have a new one while the old one is being ended by force.
func TestFind(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(uid string, lifecycle topic.Lifecycle, age time.Duration) Pod {
		p := pod("default", "web")
		p.Update.Pod.UID, p.Update.Lifecycle, p.Update.FirstSeen = types.UID(uid), lifecycle, begin.Add(-age)
		return p
	}
	other := pod("other", "web")
	for name, c := range map[string]struct {
		pods []Pod
		want types.UID // none is ""
	}{
		"none":                        {nil, ""},
		"other namespace":             {[]Pod{other}, ""},
		"other name":                  {[]Pod{pod("default", "we")}, ""},
		"over":                        {[]Pod{of("a", topic.Terminated, 0)}, ""},
		"ending":                      {[]Pod{of("a", topic.Terminating, 0)}, "a"},
		"over and a new one":          {[]Pod{of("a", topic.Terminated, 0), of("b", topic.Syncing, time.Hour)}, "b"},
		"ending and a new one":        {[]Pod{of("a", topic.Terminating, 0), of("b", topic.Syncing, time.Hour)}, "b"},
		"two, the latest is found":    {[]Pod{of("a", topic.Syncing, time.Hour), of("b", topic.Syncing, time.Minute)}, "b"},
		"two ending, the latest":      {[]Pod{of("a", topic.Terminating, 2), of("b", topic.Terminating, 1), other}, "b"},
		"two of one age, any but one": {[]Pod{of("b", topic.Syncing, 0), of("a", topic.Syncing, 0)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 {
				rand.Shuffle(len(c.pods), func(i, j int) { c.pods[i], c.pods[j] = c.pods[j], c.pods[i] })
				before := slices.Clone(c.pods)
				var got types.UID
				if p := find(shown(c.pods, false), "default", "web"); p != nil {
					got = p.Update.Pod.UID
				}
				if got != c.want {
					t.Errorf("found is %q, want %q", got, c.want)
				}
				for i := range before {
					if before[i].Update.Pod != c.pods[i].Update.Pod {
						t.Error("the source's list was changed")
					}
				}
			}
		})
	}
}

// With the gate off, pods that are over are shown too, and don't stand in the way of others of their name.
func TestEndedPodsAreShown(t *testing.T) {
	ended, failed, web := pod("default", "ended"), pod("default", "failed"), pod("default", "web")
	ended.Update.Lifecycle, failed.Phase = topic.Terminated, corev1.PodFailed
	old := pod("default", "web")
	old.Update.Pod.UID, old.Update.Lifecycle, old.Update.FirstSeen = "old", topic.Terminated, time.Now()
	pods := []Pod{web, failed, ended, old}
	for all, want := range map[bool][]types.UID{
		false: {"uid-default-web"},
		true:  {"uid-default-ended", "uid-default-failed", "old", "uid-default-web"},
	} {
		var got []types.UID
		for _, p := range shown(pods, all) {
			got = append(got, p.Update.Pod.UID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with pods that are over %t: shown are %v, want %v", all, got, want)
		}
		if p := find(shown(pods, all), "default", "web"); p == nil || p.Update.Pod.UID != web.Update.Pod.UID {
			t.Errorf("with pods that are over %t: found is %v, want the one that isn't over", all, p)
		}
	}
}
