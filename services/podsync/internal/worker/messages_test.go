package worker

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// failed is a pod whose container has ended, and the status that was known of it.
func failed(message string) (*corev1.Pod, topic.PodObservation, corev1.PodStatus) {
	pod := testPod()
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	obs := topic.PodObservation{
		At:         time.Now(),
		Sandboxes:  []topic.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.2"}}},
		Containers: []topic.Container{{ID: "x", Name: "app", SandboxID: "s", State: topic.ContainerExited, ExitCode: 1}},
	}
	status := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://x", ExitCode: 1, Message: message},
	}}}}
	return pod, obs, status
}

func (r *record) messages(t *testing.T) []string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, s := range r.statuses {
		ended := s.Status.ContainerStatuses[0].State.Terminated
		if ended == nil {
			t.Fatalf("got %+v, want an ended container", s.Status.ContainerStatuses[0].State)
		}
		all = append(all, ended.Message)
	}
	return all
}

func TestARestartKeepsTerminationMessages(t *testing.T) {
	for name, v := range map[string]struct{ before, left string }{
		"read again":         {"", "farewell"},
		"not there any more": {"farewell", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod, obs, status := failed(v.before)
				_, r := launch(t, Config{Pod: pod, Previous: status}, obs,
					&fakeExecutor{obs: obs, left: map[string]string{"x": v.left}, slowDisk: time.Millisecond})
				settle()
				for _, got := range r.messages(t) {
					if got != "farewell" {
						t.Errorf("the message was stated as %q", got)
					}
				}
			})
		})
	}
}

func TestAHangingDiskStallsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod, obs, _ := failed("")
		w, r := launch(t, Config{Pod: pod}, obs, &fakeExecutor{
			obs: obs, left: map[string]string{"x": "farewell"},
			slowDisk: time.Minute,
		})
		began := time.Now()
		w.Volumes(topic.PodVolumes{Phase: topic.VolumeUnmounted})
		w.Observe(obs)
		if d := time.Since(began); d > 0 {
			t.Errorf("the worker could be told nothing for %s", d)
		}
		time.Sleep(awaitMessage + time.Second)
		synctest.Wait()
		if got := r.messages(t); len(got) == 0 || got[0] != "" {
			t.Errorf("stated %q, want the end without a message", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := r.messages(t); got[len(got)-1] != "farewell" {
			t.Errorf("stated %q, want the message in the end", got)
		}
	})
}

func TestWhatIsGoneIsForgotten(t *testing.T) {
	w := newState(Config{Pod: testPod()}, topic.PodObservation{})
	w.view.obs = topic.PodObservation{
		Containers: []topic.Container{{ID: "c2", Name: "app"}},
		Sandboxes:  []topic.Sandbox{{ID: "s2"}},
	}
	for _, id := range []string{"c1", "c2"} {
		r, message := w.containers.of("app").run(id), ""
		r.message, r.Replaced = &message, true
	}
	w.stopped["s1"], w.stopped["s2"] = true, true
	w.forget()
	runs := w.containers.facts()["app"].Runs
	if messages := w.containers.messages(); len(messages) != 1 || len(runs) != 1 || len(w.stopped) != 1 {
		t.Errorf("kept %v, %v, %v", messages, runs, w.stopped)
	}
}
