package status

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

var (
	t0 = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	t1 = t0.Add(time.Minute)
)

const uid = "11111111-aaaa-bbbb-cccc-000000000001"

func apiPod(edit ...func(*corev1.Pod)) topic.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: uid, Generation: 2, ResourceVersion: "10"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
	}
	for _, e := range edit {
		e(p)
	}
	return topic.Pod{Pod: p, Source: topic.SourceAPI, Lifecycle: topic.Syncing}
}

func withProbes(p *corev1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	p.Spec.Containers[0].StartupProbe = &corev1.Probe{}
}

func running(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + id,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}},
	}
}

func exited(name string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://gone",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
	}
}

func patchOf(phase corev1.PodPhase, statuses ...corev1.ContainerStatus) topic.PodStatus {
	return topic.PodStatus{
		Ref: topic.Ref{Namespace: "default", Name: "web", UID: uid}, Source: topic.SourceAPI,
		Status: corev1.PodStatus{Phase: phase, ObservedGeneration: 2, ContainerStatuses: statuses},
	}
}

func verdicts(id string, startup, readiness bool) Probes {
	return Probes{"app": {
		topic.ProbeStartup:   {ContainerID: id, Success: startup},
		topic.ProbeReadiness: {ContainerID: id, Success: readiness},
	}}
}

func statusOf(s corev1.PodStatus, t corev1.PodConditionType) corev1.ConditionStatus {
	if c := condition(s.Conditions, t); c != nil {
		return c.Status
	}
	return "absent"
}

func TestReadinessBelongsToAContainerID(t *testing.T) {
	wasReady := running("app", "one")
	started := true
	wasReady.Started, wasReady.Ready = &started, true
	for name, test := range map[string]struct {
		pod     topic.Pod
		probes  Probes
		current corev1.PodStatus
		want    corev1.ConditionStatus
		started bool
	}{
		"no probes":                {pod: apiPod(), want: corev1.ConditionTrue, started: true},
		"probes without a verdict": {pod: apiPod(withProbes), want: corev1.ConditionFalse},
		"both succeed": {
			pod: apiPod(withProbes), probes: verdicts("one", true, true),
			want: corev1.ConditionTrue, started: true,
		},
		"startup succeeds, readiness fails": {
			pod: apiPod(withProbes), probes: verdicts("one", true, false),
			want: corev1.ConditionFalse, started: true,
		},
		"readiness before startup": {
			pod: apiPod(withProbes), probes: verdicts("one", false, true),
			want: corev1.ConditionFalse,
		},
		"verdicts on the container before": {
			pod: apiPod(withProbes), probes: verdicts("zero", true, true),
			want: corev1.ConditionFalse,
		},
		"no verdict yet, ready at the API": {
			pod:     apiPod(withProbes),
			current: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{wasReady}},
			want:    corev1.ConditionTrue, started: true,
		},
		"failed since, though ready at API": {
			pod: apiPod(withProbes), probes: verdicts("one", true, false),
			current: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{wasReady}},
			want:    corev1.ConditionFalse, started: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := Merge(patchOf(corev1.PodRunning, running("app", "one")), test.pod, test.probes, test.current, t1)
			if got := statusOf(s, corev1.PodReady); got != test.want {
				t.Errorf("Ready %s, want %s", got, test.want)
			}
			if got := statusOf(s, corev1.ContainersReady); got != test.want {
				t.Errorf("ContainersReady %s, want %s", got, test.want)
			}
			if c := s.ContainerStatuses[0]; c.Started == nil || *c.Started != test.started {
				t.Errorf("started %v, want %t", c.Started, test.started)
			}
		})
	}
}

func TestReadinessGates(t *testing.T) {
	gated := apiPod(func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/lb"}}
	})
	patch := patchOf(corev1.PodRunning, running("app", "one"))
	s := Merge(patch, gated, nil, corev1.PodStatus{}, t1)
	if c := condition(s.Conditions, corev1.PodReady); c.Status != corev1.ConditionFalse ||
		c.Reason != "ReadinessGatesNotReady" {
		t.Errorf("without the gate's condition Ready is %s (%s)", c.Status, c.Reason)
	}
	open := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "example.com/lb", Status: corev1.ConditionTrue}}}
	s = Merge(patch, gated, nil, open, t1)
	if got := statusOf(s, corev1.PodReady); got != corev1.ConditionTrue {
		t.Errorf("with the gate open Ready is %s", got)
	}
	if got := statusOf(s, "example.com/lb"); got != corev1.ConditionTrue {
		t.Errorf("the gate's own condition became %s", got)
	}
}

func TestInitContainersAndSidecars(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := apiPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "setup"}, {Name: "proxy", RestartPolicy: &always}}
	})
	patch := patchOf(corev1.PodPending, corev1.ContainerStatus{
		Name:  "app",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}},
	})
	patch.Status.InitContainerStatuses = []corev1.ContainerStatus{running("setup", "s"), {Name: "proxy"}}
	s := Merge(patch, pod, nil, corev1.PodStatus{}, t1)
	c := condition(s.Conditions, corev1.PodInitialized)
	if c.Status != corev1.ConditionFalse || c.Reason != "ContainersNotInitialized" ||
		c.Message != "containers with incomplete status: [setup proxy]" {
		t.Errorf("while setup runs Initialized is %+v", c)
	}
	patch.Status.InitContainerStatuses = []corev1.ContainerStatus{exited("setup", 0), running("proxy", "p")}
	s = Merge(patch, pod, nil, corev1.PodStatus{}, t1)
	if got := statusOf(s, corev1.PodInitialized); got != corev1.ConditionTrue {
		t.Errorf("with setup done and the sidecar started Initialized is %s", got)
	}
	if !s.InitContainerStatuses[0].Ready || !s.InitContainerStatuses[1].Ready {
		t.Error("a finished init container and a running sidecar are ready")
	}
	if got := condition(s.Conditions, corev1.ContainersReady).Message; got != "containers with unready status: [app]" {
		t.Errorf("ContainersReady says %q", got)
	}
}

func TestTransitionTimesMoveOnlyWithTheStatus(t *testing.T) {
	first := Merge(patchOf(corev1.PodRunning, running("app", "one")), apiPod(), nil, corev1.PodStatus{}, t0)
	second := Merge(patchOf(corev1.PodRunning, running("app", "one")), apiPod(), nil, first, t1)
	for _, c := range second.Conditions {
		if !c.LastTransitionTime.Equal(&metav1.Time{Time: t0}) {
			t.Errorf("%s moved to %s without a change", c.Type, c.LastTransitionTime)
		}
		if c.ObservedGeneration != 2 {
			t.Errorf("%s observed generation %d, want 2", c.Type, c.ObservedGeneration)
		}
	}
	if patch, err := diff(first, second, uid); err != nil || patch != nil {
		t.Errorf("an unchanged status would be written: %s, %v", patch, err)
	}
	third := Merge(patchOf(corev1.PodRunning, exited("app", 1)), apiPod(), nil, second, t1)
	if c := condition(third.Conditions, corev1.PodReady); !c.LastTransitionTime.Equal(&metav1.Time{Time: t1}) ||
		c.Status != corev1.ConditionFalse {
		t.Errorf("Ready turned without a new time: %+v", c)
	}
	if c := condition(third.Conditions, corev1.PodScheduled); !c.LastTransitionTime.Equal(&metav1.Time{Time: t0}) {
		t.Error("PodScheduled moved though it did not turn")
	}
}

func TestATerminalPodNeverGoesBack(t *testing.T) {
	current := corev1.PodStatus{
		Phase: corev1.PodFailed, Reason: "Evicted",
		ContainerStatuses: []corev1.ContainerStatus{exited("app", 137)},
	}
	s := Merge(patchOf(corev1.PodRunning, running("app", "one")), apiPod(), nil, current, t1)
	if s.Phase != corev1.PodFailed || s.Reason != "Evicted" {
		t.Errorf("phase %s (%s), want Failed (Evicted)", s.Phase, s.Reason)
	}
	if s.ContainerStatuses[0].State.Terminated == nil {
		t.Error("the container came back to life")
	}
	if c := condition(s.Conditions, corev1.PodReady); c.Status != corev1.ConditionFalse || c.Reason != "PodFailed" {
		t.Errorf("Ready is %s (%s), want False (PodFailed)", c.Status, c.Reason)
	}
}

// A manifest that comes back as it was before has the UID of the pod that has ended.
func TestAStaticPodMayLiveAgain(t *testing.T) {
	current := corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{exited("app", 137)}}
	pod := apiPod()
	pod.Source = topic.SourceFile
	s := Merge(patchOf(corev1.PodRunning, running("app", "one")), pod, nil, current, t1)
	if s.Phase != corev1.PodRunning || s.ContainerStatuses[0].State.Running == nil {
		t.Errorf("phase %s, want Running: the node alone says how a static pod does", s.Phase)
	}
}

func TestASucceededPodIsCompletedNotReady(t *testing.T) {
	s := Merge(patchOf(corev1.PodSucceeded, exited("app", 0)), apiPod(), nil, corev1.PodStatus{}, t1)
	for typ, want := range map[corev1.PodConditionType]corev1.ConditionStatus{
		corev1.PodInitialized: corev1.ConditionTrue, corev1.PodReady: corev1.ConditionFalse,
		corev1.ContainersReady: corev1.ConditionFalse,
	} {
		if c := condition(s.Conditions, typ); c.Status != want || c.Reason != "PodCompleted" {
			t.Errorf("%s is %s (%s), want %s (PodCompleted)", typ, c.Status, c.Reason, want)
		}
	}
}

func TestMergeKeepsWhatOthersOwn(t *testing.T) {
	start := metav1.NewTime(t0)
	current := corev1.PodStatus{
		StartTime: &start, NominatedNodeName: "other", ObservedGeneration: 3,
		ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu"}},
		Conditions: []corev1.PodCondition{
			{Type: "example.com/x", Status: corev1.ConditionFalse, Reason: "Theirs"},
			{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue},
		},
	}
	patch := patchOf(corev1.PodRunning, running("app", "one"))
	late := metav1.NewTime(t1)
	patch.Status.StartTime = &late
	s := Merge(patch, apiPod(), nil, current, t1)
	if !s.StartTime.Equal(&start) || s.NominatedNodeName != "other" || len(s.ResourceClaimStatuses) != 1 ||
		s.ObservedGeneration != 3 {
		t.Errorf("changed what isn't its own: %+v", s)
	}
	if c := condition(s.Conditions, "example.com/x"); c == nil || c.Reason != "Theirs" {
		t.Error("lost another owner's condition")
	}
	if statusOf(s, corev1.DisruptionTarget) != corev1.ConditionTrue {
		t.Error("lost the DisruptionTarget condition")
	}
	if statusOf(s, corev1.PodResizeInProgress) != "absent" {
		t.Error("kept a condition of its own that podsync no longer states")
	}
}

// Nobody is told that the pod is disrupted before its phase says so: until then it may end by itself.
func TestDisruptionIsReportedWithThePhase(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]corev1.ConditionStatus{
		corev1.PodRunning: "absent", corev1.PodFailed: corev1.ConditionTrue,
	} {
		patch := patchOf(phase, running("app", "one"))
		patch.Status.Reason = "Evicted"
		patch.Status.Conditions = append(patch.Status.Conditions,
			corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue})
		s := Merge(patch, apiPod(), nil, corev1.PodStatus{}, t1)
		if got := statusOf(s, corev1.DisruptionTarget); got != want {
			t.Errorf("%s: DisruptionTarget is %s, want %s", phase, got, want)
		}
	}
}

func TestMergeChangesNoArgument(t *testing.T) {
	patch := patchOf(corev1.PodRunning, running("b", "one"), running("a", "two"))
	before := patch.Status.DeepCopy()
	Merge(patch, apiPod(), nil, corev1.PodStatus{}, t1)
	if !equalJSON(t, *before, patch.Status) {
		t.Error("the patch was changed")
	}
}

func TestLongMessagesAreBounded(t *testing.T) {
	c := exited("app", 1)
	c.State.Terminated.Message = strings.Repeat("ä", messageBudget)
	s := Merge(patchOf(corev1.PodFailed, c), apiPod(), nil, corev1.PodStatus{}, t1)
	if got := s.ContainerStatuses[0].State.Terminated.Message; len(got) > messageBudget || !strings.HasSuffix(got, "ä") {
		t.Errorf("message of %d bytes ends in %q", len(got), got[len(got)-2:])
	}
}

// Whoever sees the reason sees a pod that has ended, as from the kubelet.
func TestTheReasonComesWithThePhase(t *testing.T) {
	patch := patchOf(corev1.PodRunning, running("app", "a"))
	patch.Status.Reason, patch.Status.Message = "DeadlineExceeded", "too long"
	if s := Merge(patch, apiPod(), nil, corev1.PodStatus{}, t0); s.Reason != "" || s.Message != "" {
		t.Errorf("a pod that runs: reason %q, message %q", s.Reason, s.Message)
	}
	patch.Status.Phase = corev1.PodFailed
	if s := Merge(patch, apiPod(), nil, corev1.PodStatus{}, t0); s.Reason != "DeadlineExceeded" ||
		s.Message != "too long" {
		t.Errorf("a pod that has ended: reason %q, message %q", s.Reason, s.Message)
	}
}
