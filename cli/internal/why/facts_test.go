package why

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pulls"
)

// facts are what a scenario states; what it leaves out is well. Times are how long ago, seen from noon.
type facts struct {
	// Ask is "node" for the node's answer, or the name of a pod that the node doesn't have.
	Ask        string                   `json:"ask"`
	Pod        corev1.PodSpec           `json:"pod"`
	Containers map[string]containerFact `json:"containers"`
	Volumes    map[string]topic.Volume  `json:"volumes"`
	Steps      []stepFact               `json:"steps"`
	Events     []eventFact              `json:"events"`
	Probes     map[string]probeFact     `json:"probes"`
	// Observed are containers' states in the runtime.
	Observed   map[string]topic.ContainerState `json:"observed"`
	Conditions []corev1.PodCondition           `json:"conditions"`
	End        endFact                         `json:"end"`
	Pulls      []pulls.Pull                    `json:"pulls"`
	// Allocates is true for a pod that asks for devices, CPUs or claims.
	Allocates  bool             `json:"allocates"`
	Allocation topic.Allocation `json:"allocation"`

	Runtime *topic.Runtime        `json:"runtime"`
	Health  map[string]healthFact `json:"health"`
	// Compact is true where all daemons are one process.
	Compact  bool           `json:"compact"`
	Unread   []topic.Source `json:"unread"`
	Node     nodeFact       `json:"node"`
	Pressure topic.Pressure `json:"pressure"`
	Evicted  []evictedFact  `json:"evicted"`
}

type containerFact struct {
	Waiting  string    `json:"waiting"`
	Message  string    `json:"message"`
	Running  string    `json:"running"`
	ID       string    `json:"id"`
	Restarts int32     `json:"restarts"`
	Last     *exitFact `json:"last"`
	Ended    *exitFact `json:"ended"`
}

type exitFact struct {
	Code    int32  `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Ago     string `json:"ago"`
	Ran     string `json:"ran"`
	ID      string `json:"id"`
}

type stepFact struct {
	Ago   string `json:"ago"`
	Do    string `json:"do"`
	In    string `json:"in"`
	Image string `json:"image"`
	Error string `json:"error"`
	// Open has begun and not ended.
	Open bool `json:"open"`
}

type eventFact struct {
	Ago     string `json:"ago"`
	In      string `json:"in"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Normal  bool   `json:"normal"`
	// Node is true for an Event on the Node.
	Node bool `json:"node"`
}

type probeFact struct {
	ID      string `json:"id"`
	Since   string `json:"since"`
	OK      bool   `json:"ok"`
	Message string `json:"message"`
}

// endFact is of a pod that ends or has ended.
type endFact struct {
	Lifecycle  topic.Lifecycle `json:"lifecycle"`
	In         string          `json:"in"` // until its deadline
	Deleted    bool            `json:"deleted"`
	Finished   bool            `json:"finished"`
	Gone       bool            `json:"gone"`
	Finalizers []string        `json:"finalizers"`
	Phase      corev1.PodPhase `json:"phase"`
	Reason     string          `json:"reason"`
	Message    string          `json:"message"`
}

type healthFact struct {
	State   topic.HealthState `json:"state"`
	Message string            `json:"message"`
	Silent  string            `json:"silent"`
	Absent  bool              `json:"absent"`
}

type nodeFact struct {
	NotReady string `json:"notReady"`
	Cordoned bool   `json:"cordoned"`
	Shutdown bool   `json:"shutdown"`
	Absent   bool   `json:"absent"`
}

type evictedFact struct {
	Ago     string `json:"ago"`
	Pod     string `json:"pod"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Error   string `json:"error"`
	// By is podsync for a pod that it has refused.
	By string `json:"by"`
}

func ago(t *testing.T, text string) time.Time {
	t.Helper()
	if text == "" {
		return noon
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return before(d)
}

// snapshot is what the bus says where the facts hold.
func (f facts) snapshot(t *testing.T) Snapshot {
	t.Helper()
	spec, err := yaml.Marshal(f.Pod)
	if err != nil {
		t.Fatal(err)
	}
	w := well(t, string(spec))
	f.statuses(t, w)
	f.history(t, &w)
	f.ending(t, w)
	w.change(func(p *topic.Pod) { p.Allocates = f.Allocates })
	if f.Allocation.Phase != "" {
		w.Allocations = map[string]topic.Allocation{"u1": f.Allocation}
	}
	w.Volumes["u1"] = topic.PodVolumes{Volumes: f.Volumes}
	for key, p := range f.Probes {
		w.Probes["u1."+key] = topic.Probe{ContainerID: p.ID, Success: p.OK, Message: p.Message, Since: ago(t, p.Since)}
	}
	var observed []topic.Container
	for _, name := range slices.Sorted(maps.Keys(f.Observed)) {
		observed = append(observed, topic.Container{Name: name, State: f.Observed[name]})
	}
	w.Observations["u1"] = topic.PodObservation{Containers: observed}
	w.Pulls = f.Pulls
	f.node(t, &w)
	return w
}

func (f facts) statuses(t *testing.T, w Snapshot) {
	t.Helper()
	status := corev1.PodStatus{Phase: f.End.Phase, Reason: f.End.Reason, Message: f.End.Message, Conditions: f.Conditions}
	var ephemeral []corev1.Container
	for _, c := range f.Pod.EphemeralContainers {
		ephemeral = append(ephemeral, corev1.Container(c.EphemeralContainerCommon))
	}
	for _, list := range []struct {
		specs []corev1.Container
		into  *[]corev1.ContainerStatus
	}{
		{f.Pod.InitContainers, &status.InitContainerStatuses},
		{f.Pod.Containers, &status.ContainerStatuses},
		{ephemeral, &status.EphemeralContainerStatuses},
	} {
		for i := range list.specs {
			if c, ok := f.Containers[list.specs[i].Name]; ok {
				*list.into = append(*list.into, c.status(t, list.specs[i].Name))
			}
		}
	}
	for name := range f.Containers {
		if containerOf(&corev1.Pod{Spec: f.Pod}, name).Image == "" && find(status.EphemeralContainerStatuses, name) == nil {
			t.Fatalf("the pod has no container %s with an image", name)
		}
	}
	w.Statuses["u1"] = topic.PodStatus{Status: status, Finished: f.End.Finished}
	m := *status.DeepCopy()
	for i, c := range m.ContainerStatuses {
		spec := containerOf(w.Updates["u1"].Pod, c.Name)
		m.ContainerStatuses[i].Ready = c.State.Running != nil && spec.ReadinessProbe == nil && spec.StartupProbe == nil
	}
	w.Merged["u1"] = topic.Merged{Status: m}
}

func (c containerFact) status(t *testing.T, name string) corev1.ContainerStatus {
	t.Helper()
	s := corev1.ContainerStatus{Name: name, RestartCount: c.Restarts}
	if c.ID != "" {
		s.ContainerID = "containerd://" + c.ID
	}
	switch {
	case c.Waiting != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.Waiting, Message: c.Message}
	case c.Running != "":
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(ago(t, c.Running))}
	}
	s.State.Terminated, s.LastTerminationState.Terminated = c.Ended.state(t), c.Last.state(t)
	return s
}

func (e *exitFact) state(t *testing.T) *corev1.ContainerStateTerminated {
	t.Helper()
	if e == nil {
		return nil
	}
	finished := ago(t, e.Ago)
	ran, err := time.ParseDuration(e.Ran + "0s")
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ContainerStateTerminated{
		ExitCode: e.Code, Reason: e.Reason, Message: e.Message, ContainerID: "containerd://" + e.ID,
		StartedAt: metav1.NewTime(finished.Add(-ran)), FinishedAt: metav1.NewTime(finished),
	}
}

func (f facts) history(t *testing.T, w *Snapshot) {
	t.Helper()
	ref := topic.Ref{Namespace: "default", Name: "web", UID: "u1"}
	for _, s := range f.Steps {
		step := topic.Step{Ref: ref, Name: s.Do, Container: s.In, Image: s.Image, Error: s.Error, At: ago(t, s.Ago)}
		step.Phase, step.Duration = topic.StepEnd, 120*time.Millisecond
		if s.Open {
			step.Phase, step.Duration = topic.StepBegin, 0
		}
		w.Steps = append(w.Steps, step)
	}
	for _, e := range f.Events {
		event := topic.Event{
			Kind: "Pod", Ref: ref, Type: corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, At: ago(t, e.Ago),
		}
		if e.In != "" {
			event.FieldPath = "spec.containers{" + e.In + "}"
		}
		if e.Normal {
			event.Type = corev1.EventTypeNormal
		}
		if e.Node {
			event.Kind, event.Ref = "Node", topic.Ref{Name: "n1", UID: "n1"}
		}
		w.Events = append(w.Events, event)
	}
	for _, e := range f.Evicted {
		ref := topic.Ref{Namespace: "default", Name: e.Pod, UID: e.Pod}
		if e.By != "podsync" {
			w.Decisions = append(w.Decisions, topic.Decision{
				Action: topic.ActionEvict, Object: "default/" + e.Pod, Pod: &ref, Reason: e.Reason, Error: e.Error,
				At: ago(t, e.Ago),
			})
		}
		if e.Message != "" {
			reason := "Evicted"
			if e.By == "podsync" {
				reason = e.Reason
			}
			w.Events = append(w.Events, topic.Event{
				Kind: "Pod", Ref: ref, Type: corev1.EventTypeWarning, Reason: reason, Message: e.Message, At: ago(t, e.Ago),
			})
		}
	}
}

func (f facts) ending(t *testing.T, w Snapshot) {
	t.Helper()
	e := f.End
	w.change(func(p *topic.Pod) {
		p.Pod.Finalizers = e.Finalizers
		if e.Lifecycle != "" {
			p.Lifecycle = e.Lifecycle
		}
		if e.Deleted {
			p.Pod.DeletionTimestamp = &metav1.Time{Time: before(10 * time.Second)}
		}
		if e.In != "" {
			d, err := time.ParseDuration(e.In)
			if err != nil {
				t.Fatal(err)
			}
			deadline := noon.Add(d)
			p.Deadline = &deadline
		}
	})
	if e.Gone {
		delete(w.Updates, "u1")
	}
}

func (f facts) node(t *testing.T, w *Snapshot) {
	t.Helper()
	if f.Runtime != nil {
		w.Runtime = *f.Runtime
	}
	if f.End.Gone {
		w.Sources.Pods = nil
	}
	if len(f.Unread) > 0 {
		w.Sources.Ready, w.Sources.Waiting = false, f.Unread
	}
	for name, h := range f.Health {
		if h.Absent {
			delete(w.Healths, name)
			continue
		}
		health := w.Healths[name]
		if h.State != "" {
			health.State = h.State
		}
		if h.Silent != "" {
			health.Beat = ago(t, h.Silent)
		}
		health.Message = h.Message
		w.Healths[name] = health
	}
	for name, h := range w.Healths {
		if f.Compact {
			h.PID = 7
			w.Healths[name] = h
		}
	}
	w.Pressure, w.Shutdown.Active = f.Pressure, f.Node.Shutdown
	if f.Node.Absent {
		return
	}
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status", LastTransitionTime: metav1.NewTime(before(time.Hour)),
	}
	if f.Node.NotReady != "" {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", f.Node.NotReady
		ready.LastTransitionTime = metav1.NewTime(before(3 * time.Minute))
	}
	w.Node = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	w.Node.Spec.Unschedulable = f.Node.Cordoned
	w.Node.Status.Conditions = []corev1.NodeCondition{ready}
}

// parseFacts reads the facts of a scenario, and fills in the pod that most of them have.
func parseFacts(t *testing.T, text string) facts {
	t.Helper()
	var f facts
	if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if len(f.Pod.Containers) == 0 {
		f.Pod.Containers = []corev1.Container{{Name: "app", Image: "registry.example/app:1"}}
	}
	if f.Pod.RestartPolicy == "" {
		f.Pod.RestartPolicy = corev1.RestartPolicyAlways
	}
	if strings.TrimSpace(text) == "" {
		t.Fatal("a scenario without facts")
	}
	return f
}
