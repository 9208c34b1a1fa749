package worker

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// What the API server's watch brings back of the node's own writes reaches the writer of statuses alone.
func TestEchoOfAStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.ResourceVersion = "7"
		w, r := launch(t, Config{Pod: pod}, topic.PodObservation{}, &fakeExecutor{})
		settle()
		first, _ := r.last()
		if first.Pod.ResourceVersion != "7" || first.Pod.Status.Phase != "" || len(r.objects) != 1 ||
			r.objects[0].ResourceVersion != "7" {
			t.Fatalf("stated %+v and objects %+v; want the pod without a status, and one object of version 7",
				first.Pod, r.objects)
		}

		before := len(r.pods)
		echo := testPod()
		echo.ResourceVersion, echo.Status.Phase = "8", corev1.PodRunning
		w.Update(echo, nil)
		settle()
		again, _ := r.last()
		if again.Pod != first.Pod || len(r.pods) != before {
			t.Errorf("a status alone made it another pod: %+v", again.Pod)
		}
		if last := r.objects[len(r.objects)-1]; last.ResourceVersion != "8" || last.Status.Phase != corev1.PodRunning ||
			last.UID != "u1" {
			t.Errorf("object %+v; want version 8, Running", last)
		}

		stated := len(r.pods)
		w.Volumes(topic.PodVolumes{Phase: topic.VolumePending})
		settle()
		if len(r.pods) != stated {
			t.Errorf("%+v was stated though nothing of the pod has changed", r.pods[stated:])
		}

		labelled := testPod()
		labelled.ResourceVersion, labelled.Status.Phase, labelled.Labels = "9", corev1.PodRunning,
			map[string]string{"tier": "front"}
		w.Update(labelled, nil)
		settle()
		if now, _ := r.last(); now.Pod.Labels["tier"] != "front" || now.Pod.ResourceVersion != "9" {
			t.Errorf("stated %+v; want the new label and its version", now.Pod.ObjectMeta)
		}
	})
}

// A pod that only the bus remembers says nothing of what the API server has.
func TestNoObjectOfARememberedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := testPod()
		pod.ResourceVersion = "7"
		_, r := launch(t, Config{Pod: pod, Restored: &topic.Pod{Pod: pod, Lifecycle: topic.Syncing}},
			topic.PodObservation{}, &fakeExecutor{})
		settle()
		if len(r.pods) == 0 || len(r.objects) != 0 {
			t.Errorf("stated %d pods and the objects %+v; want no object", len(r.pods), r.objects)
		}
	})
}

// What the API server says of startup probes is for the probe daemon of a node that was taken over.
func TestStartedBefore(t *testing.T) {
	yes, no := true, false
	pod := testPod()
	pod.Spec.Containers = []corev1.Container{
		{Name: "app", StartupProbe: &corev1.Probe{}},
		{Name: "slow", StartupProbe: &corev1.Probe{}},
		{Name: "plain"},
	}
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", StartupProbe: &corev1.Probe{}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "app", ContainerID: "containerd://a", Started: &yes}, {
			Name: "slow", ContainerID: "containerd://b",
			Started: &no,
		}, {Name: "plain", ContainerID: "containerd://c", Started: &yes},
	}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name:        "side",
		ContainerID: "containerd://d", Started: &yes,
	}}
	w := New(Config{Pod: pod, Node: node{}}, topic.PodObservation{}, &fakeExecutor{}, &record{},
		slog.New(slog.DiscardHandler))
	if got := w.publisher.podUpdate().StartedBefore; !slices.Equal(got, []string{"d", "a"}) {
		t.Errorf("started before: %q, want d and a", got)
	}
}
