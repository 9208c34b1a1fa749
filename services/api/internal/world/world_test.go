package world

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func pod(uid string, seen time.Time, l topic.Lifecycle) topic.Pod {
	return topic.Pod{FirstSeen: seen, Lifecycle: l, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: types.UID(uid)},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}}, Containers: []corev1.Container{{Name: "app"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", TTY: true}}},
		},
	}}
}

func TestPodOfAName(t *testing.T) {
	w := New()
	if _, ok := w.Pod("ns", "web"); ok {
		t.Error("a pod was found in an empty world")
	}
	w.Updates["old"] = pod("old", start, topic.Terminated)
	w.Updates["older"] = pod("older", start.Add(-time.Hour), topic.Terminated)
	if p, _ := w.Pod("ns", "web"); p.UID != "old" {
		t.Errorf("of two that are over: %s, want the later", p.UID)
	}
	w.Updates["new"] = pod("new", start.Add(-time.Minute), topic.Terminating)
	p, _ := w.Pod("ns", "web")
	if p.UID != "new" {
		t.Errorf("found %s, want the one that isn't over", p.UID)
	}
	for name, want := range map[string]bool{"init": true, "app": true, "debugger": true, "none": false} {
		if got := p.SpecOf(name); (got != nil) != want || want && got.Name != name {
			t.Errorf("spec of %s: %+v", name, got)
		}
	}
	w.Mirrors["mirror"] = topic.MirrorPod{Ref: topic.Ref{Namespace: "ns", Name: "web", UID: "mirror"}}
	for uid, want := range map[string]bool{"": true, "new": true, "mirror": true, "old": false} {
		if w.IsUID(p, uid) != want {
			t.Errorf("UID %q means the pod: %v", uid, !want)
		}
	}
}

func TestLogContainer(t *testing.T) {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(id string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id}}
	}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	for name, c := range map[string]struct {
		state, last corev1.ContainerState
		previous    bool
		want, err   string
	}{
		"runs":                  {state: running, want: "now"},
		"ended":                 {state: ended("e"), want: "e"},
		"ended without an ID":   {state: ended(""), last: ended("l"), want: "l"},
		"ended, no ID at all":   {state: ended(""), err: `container "app" in pod "web" is terminated`},
		"last has no ID":        {state: waits("x"), last: ended(""), err: `container "app" in pod "web" is terminated`},
		"waits after a crash":   {state: waits("CrashLoopBackOff"), last: ended("l"), want: "l"},
		"previous":              {state: running, last: ended("l"), previous: true, want: "l"},
		"no previous":           {state: running, previous: true, err: `previous terminated container "app" in pod "web" not found`},
		"waits":                 {state: waits("ContainerCreating"), err: `container "app" in pod "web" is waiting to start: ContainerCreating`},
		"waits for a pull":      {state: waits("ErrImagePull"), err: `container "app" in pod "web" is waiting to start: image can't be pulled`},
		"waits for a late pull": {state: waits("ImagePullBackOff"), err: `container "app" in pod "web" is waiting to start: trying and failing to pull image`},
		"unknown":               {err: `container "app" in pod "web" is waiting to start - no logs yet`},
	} {
		t.Run(name, func(t *testing.T) {
			p := Pod{Pod: pod("u", start, topic.Syncing).Pod}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "now", State: c.state, LastTerminationState: c.last}}
			id, err := p.LogContainer("app", c.previous)
			if id != c.want || (err != nil) != (c.err != "") || err != nil && err.Error() != c.err {
				t.Errorf("%q, %v; want %q, %s", id, err, c.want, c.err)
			}
		})
	}
	none := Pod{Pod: pod("u", start, topic.Syncing).Pod}
	if _, err := none.LogContainer("app", false); err == nil || err.Error() != `container "app" in pod "web" is not available` {
		t.Error(err)
	}
}

func TestSyncLoop(t *testing.T) {
	w := New()
	if w.SyncLoop(start) == nil {
		t.Error("healthy although nobody was heard of")
	}
	well := topic.DaemonHealth{State: topic.Healthy, Beat: start}
	w.Health["podsync"] = well
	w.Health["pleg"] = well
	if err := w.SyncLoop(start.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if w.SyncLoop(start.Add(2*time.Minute)) == nil {
		t.Error("healthy although nobody has beaten for two minutes")
	}
	w.Health["pleg"] = topic.DaemonHealth{State: topic.Unhealthy, Message: "runtime is down", Beat: start}
	if err := w.SyncLoop(start); err == nil || err.Error() != "kubelot-pleg is not healthy: runtime is down" {
		t.Error(err)
	}
}

func TestRunning(t *testing.T) {
	w := New()
	w.Seen["b"] = topic.PodObservation{Ref: topic.Ref{Namespace: "ns", Name: "b", UID: "b"}, Containers: []topic.Container{
		{ID: "1", Name: "app", Image: "i", State: topic.ContainerRunning}, {ID: "2", Name: "init", State: topic.ContainerExited},
	}}
	w.Seen["a"] = topic.PodObservation{Ref: topic.Ref{Namespace: "ns", Name: "a", UID: "a"}, Sandboxes: []topic.Sandbox{{ID: "s", Ready: true}}}
	w.Seen["c"] = topic.PodObservation{Ref: topic.Ref{Namespace: "ns", Name: "c", UID: "c"}, Containers: []topic.Container{{State: topic.ContainerExited}}}
	got := w.Running()
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" || len(got[1].Spec.Containers) != 1 || got[1].Spec.Containers[0].Image != "i" {
		t.Errorf("running: %+v", got)
	}
}

// What probes know is in the statuses that readers on the node see.
func TestPodsAreReadyByTheirProbes(t *testing.T) {
	w := New()
	p := pod("u", start, topic.Syncing)
	p.Pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	w.Updates["u"] = p
	w.Statuses["u"] = topic.PodStatus{Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "app", ContainerID: "containerd://c2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}}}
	ready := func() bool {
		s := w.Pods()[0].Status
		for _, c := range s.Conditions {
			if (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && (c.Status == corev1.ConditionTrue) != s.ContainerStatuses[0].Ready {
				t.Errorf("condition %s is %s, ready %v", c.Type, c.Status, s.ContainerStatuses[0].Ready)
			}
		}
		return len(s.Conditions) == 4 && s.ContainerStatuses[0].Ready
	}
	if ready() {
		t.Error("ready without a verdict")
	}
	w.Probes["u.app.readiness"] = topic.Probe{ContainerID: "c1", Success: true}
	if ready() {
		t.Error("ready by the verdict on another container")
	}
	w.Probes["u.app.readiness"] = topic.Probe{ContainerID: "c2", Success: true}
	if !ready() {
		t.Error("not ready after its probe's success")
	}
}

// The conditions of /pods are whole: since when they hold and why is the API server's knowledge, unless they changed since.
func TestConditionsAreWhole(t *testing.T) {
	w := New()
	p := pod("u", start, topic.Syncing)
	since := metav1.NewTime(start)
	o := topic.APIPod{ResourceVersion: "12", Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: since},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: "example.com/foreign", Status: corev1.ConditionTrue, LastTransitionTime: since},
	}}}
	w.Updates["u"] = p
	w.Objects["u"] = o
	status := func(init corev1.ContainerState, ready bool) map[corev1.PodConditionType]corev1.PodCondition {
		w.Statuses["u"] = topic.PodStatus{Status: corev1.PodStatus{
			Phase:                 corev1.PodPending,
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: init, Ready: ready}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}},
		}}
		byType := map[corev1.PodConditionType]corev1.PodCondition{}
		if got := w.Pods()[0].ResourceVersion; got != "12" {
			t.Errorf("resource version %q, want the API server's", got)
		}
		for _, c := range w.Pods()[0].Status.Conditions {
			byType[c.Type] = c
		}
		return byType
	}
	got := status(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}, false)
	for kind, want := range map[corev1.PodConditionType]corev1.PodCondition{
		corev1.PodReady:        o.Status.Conditions[0],
		corev1.ContainersReady: {Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
		corev1.PodInitialized:  {Type: corev1.PodInitialized, Status: corev1.ConditionFalse},
		corev1.PodScheduled:    {Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		"example.com/foreign":  o.Status.Conditions[2],
	} {
		if got[kind] != want {
			t.Errorf("%s: %+v, want %+v", kind, got[kind], want)
		}
	}
	if c := status(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}, false)[corev1.PodInitialized]; c.Status != corev1.ConditionTrue {
		t.Errorf("initialized after the init container's end: %+v", c)
	}
}

// Pods that no source has, and that are being ended, are none of the node's pods.
func TestUnwantedPods(t *testing.T) {
	w := New()
	w.Updates["kept"] = pod("kept", start, topic.Syncing)
	w.Updates["new"] = pod("new", start, topic.Syncing)
	w.Updates["evicted"] = pod("evicted", start, topic.Terminated)
	w.Updates["stray"] = pod("stray", start, topic.Terminating)
	if got := len(w.Pods()); got != 4 {
		t.Errorf("%d pods before the sources have delivered, want all 4", got)
	}
	w.Sources[""] = topic.Sources{Ready: true, Pods: []string{"kept", "evicted"}}
	for _, p := range w.Pods() {
		if p.UID == "stray" {
			t.Error("a pod that no source has is shown")
		}
	}
	if got := len(w.Pods()); got != 3 {
		t.Errorf("%d pods, want 3: one may be newer than what is known of the sources", got)
	}
	w.Sources[""] = topic.Sources{Pods: []string{"kept"}}
	if got := len(w.Pods()); got != 4 {
		t.Errorf("%d pods while a source hasn't delivered, want all 4", got)
	}
}
