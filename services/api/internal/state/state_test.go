package state

import (
	"strings"
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
			EphemeralContainers: []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", TTY: true}},
			},
		},
	}}
}

func TestPodOfAName(t *testing.T) {
	s := New()
	if _, ok := s.Pod("ns", "web"); ok {
		t.Error("a pod was found in an empty state")
	}
	s.Updates["old"] = pod("old", start, topic.Terminated)
	s.Updates["older"] = pod("older", start.Add(-time.Hour), topic.Terminated)
	if p, _ := s.Pod("ns", "web"); p.UID != "old" {
		t.Errorf("of two that are over: %s, want the later", p.UID)
	}
	s.Updates["new"] = pod("new", start.Add(-time.Minute), topic.Terminating)
	p, _ := s.Pod("ns", "web")
	if p.UID != "new" {
		t.Errorf("found %s, want the one that isn't over", p.UID)
	}
	for name, want := range map[string]bool{"init": true, "app": true, "debugger": true, "none": false} {
		if got := p.SpecOf(name); (got != nil) != want || want && got.Name != name {
			t.Errorf("spec of %s: %+v", name, got)
		}
	}
	s.Mirrors["mirror"] = topic.MirrorPod{Ref: topic.Ref{Namespace: "ns", Name: "web", UID: "mirror"}}
	for uid, want := range map[string]bool{"": true, "new": true, "mirror": true, "old": false} {
		if s.IsUID(p, uid) != want {
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
		"runs":                {state: running, want: "now"},
		"ended":               {state: ended("e"), want: "e"},
		"ended without an ID": {state: ended(""), last: ended("l"), want: "l"},
		"ended, no ID at all": {state: ended(""), err: `container "app" in pod "web" is terminated`},
		"last has no ID":      {state: waits("x"), last: ended(""), err: `container "app" in pod "web" is terminated`},
		"waits after a crash": {state: waits("CrashLoopBackOff"), last: ended("l"), want: "l"},
		"previous":            {state: running, last: ended("l"), previous: true, want: "l"},
		"no previous": {
			state: running, previous: true,
			err: `previous terminated container "app" in pod "web" not found`,
		},
		"waits": {
			state: waits("ContainerCreating"),
			err:   `container "app" in pod "web" is waiting to start: ContainerCreating`,
		},
		"waits for a pull": {
			state: waits("ErrImagePull"),
			err:   `container "app" in pod "web" is waiting to start: image can't be pulled`,
		},
		"waits for a late pull": {
			state: waits("ImagePullBackOff"),
			err:   `container "app" in pod "web" is waiting to start: trying and failing to pull image`,
		},
		"unknown": {err: `container "app" in pod "web" is waiting to start - no logs yet`},
	} {
		t.Run(name, func(t *testing.T) {
			p := Pod{Pod: pod("u", start, topic.Syncing).Pod}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "app", ContainerID: "now", State: c.state,
				LastTerminationState: c.last,
			}}
			id, err := p.LogContainer("app", c.previous)
			if id != c.want || (err != nil) != (c.err != "") || err != nil && err.Error() != c.err {
				t.Errorf("%q, %v; want %q, %s", id, err, c.want, c.err)
			}
		})
	}
	none := Pod{Pod: pod("u", start, topic.Syncing).Pod}
	if _, err := none.LogContainer("app", false); err == nil ||
		err.Error() != `container "app" in pod "web" is not available` {
		t.Error(err)
	}
}

func TestSyncLoop(t *testing.T) {
	s := New()
	if s.SyncLoop(start) == nil {
		t.Error("healthy although nobody was heard of")
	}
	well := topic.DaemonHealth{State: topic.Healthy, Beat: start}
	s.Health["podsync"] = well
	s.Health["pleg"] = well
	if err := s.SyncLoop(start.Add(time.Minute)); err != nil {
		t.Error(err)
	}
	if s.SyncLoop(start.Add(2*time.Minute)) == nil {
		t.Error("healthy although nobody has beaten for two minutes")
	}
	s.Health["pleg"] = topic.DaemonHealth{State: topic.Unhealthy, Message: "runtime is down", Beat: start}
	if err := s.SyncLoop(start); err == nil || err.Error() != "kubelot-pleg is not healthy: runtime is down" {
		t.Error(err)
	}
	// All were stopped and started, and api is there first: the bus still has what the others said at their end.
	s.Health["pleg"] = topic.DaemonHealth{State: topic.Stopped, Beat: start}
	if err := s.SyncLoop(start); err == nil || !strings.HasPrefix(err.Error(), "kubelot-pleg was stopped at ") {
		t.Error(err)
	}
}

func TestRunning(t *testing.T) {
	s := New()
	s.Seen["b"] = topic.PodObservation{Ref: topic.Ref{Namespace: "ns", Name: "b", UID: "b"}, Containers: []topic.Container{
		{ID: "1", Name: "app", Image: "i", State: topic.ContainerRunning},
		{ID: "2", Name: "init", State: topic.ContainerExited},
	}}
	s.Seen["a"] = topic.PodObservation{
		Ref:       topic.Ref{Namespace: "ns", Name: "a", UID: "a"},
		Sandboxes: []topic.Sandbox{{ID: "s", Ready: true}},
	}
	s.Seen["c"] = topic.PodObservation{
		Ref:        topic.Ref{Namespace: "ns", Name: "c", UID: "c"},
		Containers: []topic.Container{{State: topic.ContainerExited}},
	}
	got := s.Running()
	if len(got) != 2 || got[0].Name != "a" || got[1].Name != "b" || len(got[1].Spec.Containers) != 1 ||
		got[1].Spec.Containers[0].Image != "i" {
		t.Errorf("running: %+v", got)
	}
}

// conditionsOf are the conditions that /pods shows of the only pod, by their type.
func conditionsOf(t *testing.T, s *State) map[corev1.PodConditionType]corev1.PodCondition {
	t.Helper()
	byType := map[corev1.PodConditionType]corev1.PodCondition{}
	for _, c := range s.Pods()[0].Status.Conditions {
		if _, twice := byType[c.Type]; twice {
			t.Errorf("%s is there twice", c.Type)
		}
		byType[c.Type] = c
	}
	return byType
}

func merged(version string, s corev1.PodStatus) topic.Merged {
	return topic.Merged{ResourceVersion: version, Status: s}
}

func ran(name, id string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + id, Ready: ready,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
}

// Readiness is the merged status's. As long as that isn't there, /pods claims none, whatever the pod's probes may say.
func TestPodsAreReadyByTheirMergedStatus(t *testing.T) {
	s := New()
	s.Updates["u"] = pod("u", start, topic.Syncing)
	if got := s.Pods()[0].Status; got.Phase != corev1.PodPending || len(got.Conditions) > 0 {
		t.Errorf("a pod that was just admitted: %+v", got)
	}
	s.Computed["u"] = topic.PodStatus{Status: corev1.PodStatus{
		Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ran("app", "c2", false)},
	}}
	if got := s.Pods()[0].Status; got.Phase != corev1.PodRunning || len(conditionsOf(t, s)) > 0 ||
		got.ContainerStatuses[0].Ready {
		t.Errorf("before its status is merged: %+v", got)
	}
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionTrue: true, corev1.ConditionFalse: false} {
		s.Merged["u"] = merged("", corev1.PodStatus{
			Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{ran("app", "c2", want)},
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: status},
				{Type: corev1.ContainersReady, Status: status},
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			},
		})
		got := conditionsOf(t, s)
		if len(got) != 4 || got[corev1.PodReady].Status != status || got[corev1.ContainersReady].Status != status ||
			s.Pods()[0].Status.ContainerStatuses[0].Ready != want {
			t.Errorf("merged as %s: %+v", status, s.Pods()[0].Status)
		}
	}
}

// A sidecar that isn't ready keeps the pod's containers from being ready.
func TestASidecarThatIsNotReady(t *testing.T) {
	s := New()
	always := corev1.ContainerRestartPolicyAlways
	p := pod("u", start, topic.Syncing)
	p.Pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, ReadinessProbe: &corev1.Probe{}}}
	s.Updates["u"] = p
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, InitContainerStatuses: []corev1.ContainerStatus{ran("side", "c1", false)},
		ContainerStatuses: []corev1.ContainerStatus{ran("app", "c2", false)},
	}
	s.Computed["u"] = topic.PodStatus{Status: *status.DeepCopy()}
	status.ContainerStatuses[0].Ready = true
	unready := corev1.PodCondition{
		Type: corev1.ContainersReady, Status: corev1.ConditionFalse,
		Reason: "ContainersNotReady", Message: "containers with unready status: [side]",
	}
	status.Conditions = []corev1.PodCondition{unready}
	s.Merged["u"] = merged("", status)
	if got := conditionsOf(t, s)[corev1.ContainersReady]; got != unready {
		t.Errorf("%+v, want %+v", got, unready)
	}
}

// The conditions of /pods are whole: since when they hold and why, and those of other owners.
func TestConditionsAreWhole(t *testing.T) {
	s := New()
	p := pod("u", start, topic.Syncing)
	p.Pod.ResourceVersion = "9"
	s.Updates["u"] = p
	since := metav1.NewTime(start)
	want := []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", LastTransitionTime: since},
		{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: since},
		{Type: corev1.PodInitialized, Status: corev1.ConditionFalse, LastTransitionTime: since},
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: since},
		{Type: "example.com/foreign", Status: corev1.ConditionTrue, LastTransitionTime: since},
	}
	s.Merged["u"] = merged("12", corev1.PodStatus{Phase: corev1.PodPending, Conditions: want})
	s.Computed["u"] = topic.PodStatus{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	got := conditionsOf(t, s)
	for _, c := range want {
		if got[c.Type] != c {
			t.Errorf("%s: %+v, want %+v", c.Type, got[c.Type], c)
		}
	}
	if got := s.Pods()[0]; got.ResourceVersion != "12" || got.Status.Phase != corev1.PodPending {
		t.Errorf("resource version %q, want the API server's; phase %s", got.ResourceVersion, got.Status.Phase)
	}
	p.Pod.ResourceVersion = "100"
	if got := s.Pods()[0].ResourceVersion; got != "100" {
		t.Errorf("resource version %q, want the later one", got)
	}
}

// Logs are found by podsync's own status, so they can be read while the status daemon is away.
func TestLogsNeedNoMergedStatus(t *testing.T) {
	s := New()
	s.Updates["u"] = pod("u", start, topic.Syncing)
	s.Merged["u"] = merged("", corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{ran("app", "old", true)}})
	s.Computed["u"] = topic.PodStatus{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{ran("app",
		"new", false)}}}
	p, _ := s.Pod("ns", "web")
	if id, err := p.LogContainer("app", false); id != "containerd://new" || err != nil {
		t.Errorf("%s, %v", id, err)
	}
}

// Pods that no source has, and that are being ended, are none of the node's pods.
func TestUnwantedPods(t *testing.T) {
	s := New()
	s.Updates["kept"] = pod("kept", start, topic.Syncing)
	s.Updates["new"] = pod("new", start, topic.Syncing)
	s.Updates["evicted"] = pod("evicted", start, topic.Terminated)
	s.Updates["stray"] = pod("stray", start, topic.Terminating)
	if got := len(s.Pods()); got != 4 {
		t.Errorf("%d pods before the sources have delivered, want all 4", got)
	}
	s.Sources[""] = topic.Sources{Ready: true, Pods: []string{"kept", "evicted"}}
	for _, p := range s.Pods() {
		if p.UID == "stray" {
			t.Error("a pod that no source has is shown")
		}
	}
	if got := len(s.Pods()); got != 3 {
		t.Errorf("%d pods, want 3: one may be newer than what is known of the sources", got)
	}
	s.Sources[""] = topic.Sources{Pods: []string{"kept"}}
	if got := len(s.Pods()); got != 4 {
		t.Errorf("%d pods while a source hasn't delivered, want all 4", got)
	}
}
