package why

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/pods"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "rewrite the golden file")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) time.Time { return noon.Add(-d) }

// well is a node on which nothing is wrong, with one pod of the specification, seen two minutes ago.
func well(t *testing.T, spec string) Snapshot {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u1"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &pod.Spec); err != nil {
		t.Fatal(err)
	}
	w := Snapshot{
		State: pods.State{
			Sources: topic.Sources{Ready: true, Pods: []string{"u1"}},
			Updates: map[string]topic.Pod{"u1": {
				Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing,
				FirstSeen: before(2 * time.Minute),
			}},
			Statuses: map[string]topic.PodStatus{}, Merged: map[string]topic.Merged{},
			Observations: map[string]topic.PodObservation{},
		},
		Probes:  map[string]topic.Probe{},
		Healths: map[string]topic.DaemonHealth{}, Volumes: map[string]topic.PodVolumes{},
		Runtime: topic.Runtime{
			Name: "containerd", Reachable: true, RuntimeReady: topic.RuntimeCondition{Status: true},
			NetworkReady: topic.RuntimeCondition{Status: true},
		},
	}
	for _, name := range crew {
		w.Healths[name] = topic.DaemonHealth{State: topic.Healthy, Beat: before(time.Second), Started: before(time.Hour)}
	}
	return w
}

// status is the pod's: computed, and merged by the status daemon, which calls ready what runs and has no probes.
func (w Snapshot) status(status corev1.PodStatus) {
	w.Statuses["u1"] = topic.PodStatus{Status: status}
	m := *status.DeepCopy()
	for i, c := range m.ContainerStatuses {
		m.ContainerStatuses[i].Ready = c.State.Running != nil && w.Updates["u1"].Pod.Spec.Containers[i].ReadinessProbe == nil
	}
	w.Merged["u1"] = topic.Merged{Status: m}
}

func (w Snapshot) change(change func(*topic.Pod)) {
	update := w.Updates["u1"]
	change(&update)
	w.Updates["u1"] = update
}

func (w *Snapshot) step(ago time.Duration, name, container, phase, err string) {
	w.Steps = append(w.Steps, topic.Step{
		Ref: topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, Name: name, Container: container,
		Phase: phase, Error: err,
		At: before(ago), Duration: 120 * time.Millisecond,
	})
}

func waits(name, reason, message string, last *corev1.ContainerStateTerminated) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		LastTerminationState: corev1.ContainerState{Terminated: last},
	}
}

func runs(name, id string) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + id,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(before(time.Minute))}},
	}
}

const (
	plain  = "containers: [{name: app, image: a}]"
	probed = "containers: [{name: app, image: a, readinessProbe: {exec: {command: [a]}}}]"
)

var stories = []struct {
	name, spec string
	tell       func(w *Snapshot)
}{
	{"all is well", plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{runs("app", "c1")}})
	}},
	{"a Secret is missing", plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits("app", "CreateContainerConfigError",
			`secret "db" not found`, nil)}})
		w.step(119*time.Second, "create sandbox", "", topic.StepEnd, "")
		w.step(118*time.Second, "start container", "app", topic.StepBegin, "")
		w.step(118*time.Second, "start container", "app", topic.StepEnd, `secret "db" not found`)
		w.step(8*time.Second, "start container", "app", topic.StepEnd, `secret "db" not found`)
		w.Events = append(w.Events,
			topic.Event{
				Ref: topic.Ref{UID: "u1"}, Type: "Warning", Reason: "Failed", Message: `Error: secret "db" not found`,
				At: before(8 * time.Second),
			},
			topic.Event{
				Ref: topic.Ref{UID: "u1"}, Type: "Normal", Reason: "Pulled", Message: "told by its step",
				At: before(8 * time.Second),
			})
	}},
	{"a volume fails", plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits("app", "ContainerCreating", "", nil)}})
		w.Volumes["u1"] = topic.PodVolumes{Volumes: map[string]topic.Volume{
			"data": {Phase: topic.VolumeFailed, Reason: "FailedMount", Message: "no such \x1b[2Jclaim"},
			"fine": {Phase: topic.VolumeMounted}, "slow": {Phase: topic.VolumePending},
		}}
	}},
	{"it crashes", plain, func(w *Snapshot) {
		crash := waits("app", "CrashLoopBackOff", "back-off 40s", &corev1.ContainerStateTerminated{
			ExitCode: 2,
			Reason:   "Error", Message: "panic: no\n", FinishedAt: metav1.NewTime(before(5 * time.Second)),
		})
		crash.RestartCount = 4
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{crash}})
	}},
	{"it is out of memory", "containers: [{name: app, image: a, resources: {limits: {memory: 16Mi}}}]", func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits("app", "CrashLoopBackOff", "",
			&corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon)})}})
	}},
	{"an init container runs, and the others follow from it", "initContainers: [{name: migrate, image: a}]\n" +
		plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{runs("migrate", "c0")},
			ContainerStatuses:     []corev1.ContainerStatus{waits("app", "PodInitializing", "", nil)},
		})
	}},
	{"a readiness probe fails", probed, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{runs("app", "c1")}})
		w.Probes["u1.app.readiness"] = topic.Probe{
			ContainerID: "c1", Message: "connection refused",
			Since: before(30 * time.Second),
		}
	}},
	{"the verdict is an earlier container's", probed, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{runs("app", "c2")}})
		w.Probes["u1.app.readiness"] = topic.Probe{ContainerID: "c1", Success: true}
		w.Events = append(w.Events, topic.Event{
			Ref: topic.Ref{UID: "u1"}, FieldPath: "spec.containers{app}",
			Reason: "Unhealthy", Message: "Readiness probe failed: not yet\n",
		})
	}},
	{"a gate is shut", "readinessGates: [{conditionType: example.com/lb}]\n" + plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{runs("app", "c1")}})
	}},
	{"the runtime hangs and pleg is silent", plain, func(w *Snapshot) {
		w.Runtime = topic.Runtime{Name: "containerd", Message: "context deadline exceeded"}
		w.Healths["pleg"] = topic.DaemonHealth{State: topic.Healthy, Beat: before(5 * time.Minute)}
		delete(w.Healths, "volume")
	}},
	{"no CNI configuration, and a pull under way since before podsync's restart is none", plain, func(w *Snapshot) {
		w.Runtime.NetworkReady = topic.RuntimeCondition{
			Reason:  "NetworkPluginNotReady",
			Message: "cni plugin not initialized",
		}
		w.step(90*time.Second, "ensure image", "app", topic.StepBegin, "")
		w.Healths["podsync"] = topic.DaemonHealth{State: topic.Healthy, Beat: noon, Started: before(time.Minute)}
	}},
	{"a pull takes long", plain, func(w *Snapshot) {
		w.status(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{waits("app", "ContainerCreating", "", nil)}})
		w.step(90*time.Second, "ensure image", "app", topic.StepBegin, "")
	}},
	{"a sandbox fails again and again", plain, func(w *Snapshot) {
		for _, ago := range []time.Duration{time.Minute, 40 * time.Second, 20 * time.Second} {
			w.step(ago, "create sandbox", "", topic.StepBegin, "")
			w.step(ago, "create sandbox", "", topic.StepEnd, "failed to set up network")
		}
	}},
	{"it stops", plain, func(w *Snapshot) {
		w.change(func(p *topic.Pod) {
			deadline := noon.Add(20 * time.Second)
			p.Lifecycle, p.Deadline = topic.Terminating, &deadline
			p.Pod.DeletionTimestamp = &metav1.Time{Time: before(10 * time.Second)}
		})
		w.Observations["u1"] = topic.PodObservation{Containers: []topic.Container{{
			Name:  "app",
			State: topic.ContainerRunning,
		}}}
		w.step(10*time.Second, "stop container", "app", topic.StepBegin, "")
	}},
	{"a volume stays mounted", plain, func(w *Snapshot) {
		w.change(func(p *topic.Pod) { p.Lifecycle, p.Pod.DeletionTimestamp = topic.Terminated, &metav1.Time{Time: noon} })
		w.Volumes["u1"] = topic.PodVolumes{Volumes: map[string]topic.Volume{"data": {
			Phase:  topic.VolumeMounted,
			Reason: "FailedUnmount", Message: "device is busy",
		}}}
	}},
	{"finalizers keep it", plain, func(w *Snapshot) {
		w.change(func(p *topic.Pod) {
			p.Lifecycle, p.Pod.DeletionTimestamp, p.Pod.Finalizers = topic.Terminated, &metav1.Time{Time: noon},
				[]string{"example.com/hold"}
		})
		w.Statuses["u1"] = topic.PodStatus{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}, Finished: true}
	}},
	{"it was rejected", plain, func(w *Snapshot) {
		w.change(func(p *topic.Pod) { p.Lifecycle = topic.Terminated })
		w.status(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfcpu", Message: "Pod was rejected: Node didn't " +
			"have enough resource: cpu"})
	}},
	{"it has left", plain, func(w *Snapshot) {
		w.step(time.Hour, "remove sandboxes", "", topic.StepEnd, "")
		delete(w.Updates, "u1")
		w.Sources.Pods = nil
	}},
	{"podsync hasn't begun", plain, func(w *Snapshot) {
		delete(w.Updates, "u1")
		w.Sources = topic.Sources{Pods: []string{"u1"}, Waiting: []topic.Source{topic.SourceFile}}
	}},
}

func TestExplain(t *testing.T) {
	var out strings.Builder
	for _, s := range stories {
		w := well(t, s.spec)
		s.tell(&w)
		out.WriteString("# " + s.name + "\n" + Text(Explain(w, topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, noon),
			noon, paint.Painter{}) + "\n")
	}
	golden := filepath.Join("testdata", "stories.txt")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("the answers differ (go test -rewrite, then read the diff):\n%s", out.String())
	}
}

func TestFind(t *testing.T) {
	w := well(t, plain)
	for _, name := range []string{"web", "default/web", "u1"} {
		if ref, err := Find(w, name); err != nil || ref.UID != "u1" {
			t.Errorf("%s: %v, %v", name, ref, err)
		}
	}
	again := w.Updates["u1"]
	again.Pod = again.Pod.DeepCopy()
	again.Pod.UID, again.FirstSeen = "u2", noon
	w.Updates["u2"] = again
	if ref, err := Find(w, "web"); err != nil || ref.UID != "u2" {
		t.Errorf("the pod that replaces another of its name: %v, %v", ref, err)
	}
	elsewhere := again
	elsewhere.Pod = again.Pod.DeepCopy()
	elsewhere.Pod.Namespace, elsewhere.Pod.UID = "other", "u3"
	w.Updates["u3"] = elsewhere
	if _, err := Find(w, "web"); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("two namespaces: %v", err)
	}
	if _, err := Find(w, "default/nobody"); err == nil || !strings.Contains(err.Error(), "scheduled") {
		t.Errorf("an unknown pod: %v", err)
	}
	w.step(time.Hour, "remove sandboxes", "", topic.StepEnd, "")
	clear(w.Updates)
	if ref, err := Find(w, "web"); err != nil || ref.UID != "u1" {
		t.Errorf("a pod of the history: %v, %v", ref, err)
	}
}

// The pod of a manifest has the node's name as suffix, which people who look at the manifest don't type.
func TestFindByTheBeginningOfTheName(t *testing.T) {
	w := well(t, plain)
	add := func(uid, namespace, name string, source topic.Source) {
		update := w.Updates["u1"]
		update.Pod, update.Source = update.Pod.DeepCopy(), source
		update.Pod.UID, update.Pod.Namespace, update.Pod.Name = types.UID(uid), namespace, name
		update.Pod.Spec.NodeName = "n1"
		w.Updates[uid] = update
	}
	add("s1", "default", "proxy-n1", topic.SourceFile)
	add("a1", "default", "proxy-n1-other", topic.SourceAPI)
	add("a2", "default", "queue-n1", topic.SourceAPI)
	add("a3", "other", "queue-2", topic.SourceAPI)
	for name, want := range map[string]string{
		"proxy": "s1", "default/proxy": "s1", "proxy-n1": "s1", "proxy-n1-": "a1", "default/queue": "a2", "queue-2": "a3",
		"we": "u1", "default/we": "u1",
	} {
		if ref, err := Find(w, name); err != nil || ref.UID != want {
			t.Errorf("%s: %v, %v; want %s", name, ref, err, want)
		}
	}
	for name, want := range map[string]string{
		"queue": "default/queue-n1 and other/queue-2", "proxy-": "default/proxy-n1 and default/proxy-n1-other",
		"other/proxy": "scheduled", "": "scheduled", "eb": "scheduled",
	} {
		if _, err := Find(w, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want an error with %q", name, err, want)
		}
	}
	w.step(time.Hour, "remove sandboxes", "", topic.StepEnd, "")
	clear(w.Updates)
	if ref, err := Find(w, "we"); err != nil || ref.UID != "u1" {
		t.Errorf("a pod of the history: %v, %v", ref, err)
	}
}

func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
		defer cli.Close()
		steps := topic.PodStep.Publisher(podsync)
		for _, phase := range []string{topic.StepBegin, topic.StepEnd} {
			if err := steps.Publish("u1", topic.Step{
				Ref:  topic.Ref{Namespace: "default", Name: "web", UID: "u1"},
				Name: "create sandbox", Phase: phase,
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := steps.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		w, err := Read(t.Context(), cli)
		if err != nil || len(w.Steps) != 2 {
			t.Errorf("%+v, %v", w.Steps, err)
		}
	})
}

// A readiness gate's condition is others' to set, at the API server.
func TestReadinessGate(t *testing.T) {
	gated := func(conditions ...corev1.PodCondition) Answer {
		w := well(t, "readinessGates: [{conditionType: example.com/lb}]\ncontainers: [{name: app, image: a}]")
		w.status(corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{
				Name: "app", ContainerID: "containerd://a", Ready: true,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			},
		}})
		m := w.Merged["u1"]
		m.Status.Conditions = conditions
		w.Merged["u1"] = m
		return Explain(w, topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, noon)
	}
	if a := gated(); a.State != Waiting || !strings.Contains(a.Causes[0].Problem, "nobody has set") {
		t.Errorf("without the condition: %+v", a)
	}
	if a := gated(corev1.PodCondition{
		Type: "example.com/lb", Status: corev1.ConditionFalse,
		Reason: "Draining",
	}); a.State != Waiting || !strings.Contains(a.Causes[0].Problem, "Draining") {
		t.Errorf("with a False one: %+v", a)
	}
	if a := gated(corev1.PodCondition{Type: "example.com/lb", Status: corev1.ConditionTrue}); a.State != Ready {
		t.Errorf("with a True one: %+v", a)
	}
}
