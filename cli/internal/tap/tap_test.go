package tap

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test -rewrite, then read the diff):\n%s", name, got)
	}
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

const secret = "s3cr3t"

func message(t *testing.T, at time.Duration, daemon, subject string, payload any) bus.Message {
	t.Helper()
	m := bus.Message{Subject: subject, Time: noon.Add(at), Header: map[string]string{
		bus.HeaderDaemon: daemon,
		bus.HeaderSchema: "1",
	}}
	if payload == nil {
		m.Header[bus.HeaderTombstone] = "1"
		return m
	}
	if raw, ok := payload.(string); ok {
		m.Data = []byte(raw)
		return m
	}
	data, err := json.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	m.Data = data
	return m
}

func examplePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-0", UID: "u1",
			Annotations: map[string]string{lastApplied: `{"env":"` + secret + `"}`},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Image: "busybox",
			Env: []corev1.EnvVar{
				{Name: "PASSWORD", Value: secret},
				{Name: "REF", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: "/", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: secret}},
			}}},
		}}},
	}
}

// story is a pod's way over all topics, with what can go wrong on it.
func story(t *testing.T) []bus.Message {
	ref := topic.Ref{Namespace: "default", Name: "web-0", UID: "u1"}
	grace := int64(30)
	status := func(phase corev1.PodPhase, state corev1.ContainerState, finished bool) topic.PodStatus {
		return topic.PodStatus{Ref: ref, Finished: finished, Status: corev1.PodStatus{
			Phase: phase, PodIP: "10.0.0.5",
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: state}},
		}}
	}
	observed := func(state topic.ContainerState, code int32) topic.PodObservation {
		return topic.PodObservation{
			Ref: ref, Sandboxes: []topic.Sandbox{{Ready: true, IPs: []string{"10.0.0.5"}}},
			Containers: []topic.Container{{ID: "c1", Name: "app", State: state, ExitCode: code, RestartCount: 2}},
		}
	}
	return []bus.Message{
		message(t, 0, "podsync", "pod.sources", topic.Sources{Waiting: []topic.Source{"api", "file"}}),
		message(t, 0, "podsync", "pod.sources", topic.Sources{Ready: true, Pods: []string{"u1"}}),
		message(t, time.Second, "podsync", "pod.update.u1", topic.Pod{
			Pod: examplePod(), Source: "api",
			Lifecycle: topic.Syncing,
		}),
		message(t, time.Second, "podsync", "podsync.step.u1", topic.Step{
			Ref: ref, Name: "pull image", Container: "app",
			Image: "busybox", Phase: topic.StepBegin,
		}),
		message(t, 2*time.Second, "podsync", "podsync.step.u1", topic.Step{
			Ref: ref, Name: "pull image", Container: "app",
			Image: "busybox", Phase: topic.StepEnd, Duration: 1234567 * time.Microsecond,
		}),
		message(t, 2*time.Second, "podsync", "podsync.step.u1", topic.Step{
			Ref: ref, Name: "create sandbox",
			Phase: topic.StepEnd, Duration: time.Second, Error: "no \x1b[2J network",
		}),
		message(t, 2*time.Second, "volume", "volume.state.u1", topic.PodVolumes{
			Ref: ref, Phase: topic.VolumeFailed,
			Volumes: map[string]topic.Volume{
				"data": {Phase: topic.VolumeFailed, Message: `configmap "x" not found`}, "tmp": {Phase: topic.VolumeMounted},
			},
		}),
		message(t, 3*time.Second, "volume", "volume.state.u1", topic.PodVolumes{
			Ref: ref, Phase: topic.VolumeMounted,
			Volumes: map[string]topic.Volume{"data": {Phase: topic.VolumeMounted}},
		}),
		message(t, 3*time.Second, "pleg", "pleg.event.u1", observed(topic.ContainerRunning, 0)),
		message(t, 4*time.Second, "podsync", "status.patch.u1",
			status(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}},
				false)),
		message(t, 4*time.Second, "podsync", "status.patch.u1",
			status(corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, false)),
		message(t, 5*time.Second, "probe", "probe.result.u1.app.readiness", topic.Probe{Message: "connection refused"}),
		message(t, 5*time.Second, "probe", "probe.result.u1.app.readiness", topic.Probe{Success: true}),
		message(t, 5*time.Second, "status", "pod.status.u1", topic.Merged{Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{
					Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady",
					Message: "containers with unready status: [app]",
				},
			},
		}}),
		message(t, 5*time.Second, "status", "pod.status.u1", topic.Merged{Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
		}}),
		message(t, 6*time.Second, "pleg", "pleg.event.u1", observed(topic.ContainerExited, 137)),
		message(t, 7*time.Second, "podsync", "event.podsync", topic.Event{
			Kind: "Pod", Ref: ref, Type: "Warning",
			Reason: "BackOff", Message: "Back-off restarting",
		}),
		message(t, 7*time.Second, "podsync", "pod.update.u1", topic.Pod{
			Pod: examplePod(), Source: "api",
			Lifecycle: topic.Terminating, GracePeriodSeconds: &grace,
		}),
		message(t, 8*time.Second, "podsync", "status.patch.u1",
			status(corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				ExitCode: 137,
				Reason:   "Error",
			}}, true)),
		message(t, 8*time.Second, "podsync", "pod.update.u1", nil),
		message(t, 8*time.Second, "podsync", "pod.mirror.m1",
			topic.MirrorPod{Ref: topic.Ref{Namespace: "kube-system", Name: "etcd-n", UID: "m1"}, Hash: "abc"}),
		message(t, 9*time.Second, "stats", "node.machine", topic.Machine{
			NumCores: 2, MemoryBytes: 4 << 30,
			OSImage: "Debian 12", CgroupVersion: 2,
		}),
		message(t, 9*time.Second, "pleg", "node.runtime", topic.Runtime{
			Name: "containerd", Version: "2.4.2", Reachable: true,
			RuntimeReady: topic.RuntimeCondition{Status: true},
			NetworkReady: topic.RuntimeCondition{Reason: "NetworkPluginNotReady", Message: "no CNI"},
		}),
		message(t, 9*time.Second, "pleg", "node.runtime", topic.Runtime{Message: "connection refused"}),
		message(t, 9*time.Second, "lease", "node.object", corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			}},
		}),
		message(t, 9*time.Second, "gc", "node.pressure", topic.Pressure{Memory: true, Message: "memory.available 80Mi"}),
		message(t, 9*time.Second, "gc", "node.pressure", topic.Pressure{}),
		message(t, 9*time.Second, "pleg", "health.pleg", topic.DaemonHealth{State: topic.Healthy, PID: 7, Version: "v1"}),
		message(t, 9*time.Second, "pleg", "health.pleg", topic.DaemonHealth{
			State: topic.Degraded, Message: "no event stream",
			PID: 7, Version: "v1",
		}),
		message(t, 9*time.Second, "x", "pod.update.u2", "not JSON"),
		message(t, 9*time.Second, "x", "who.knows", `{"a":1}`),
	}
}

func lines(t *testing.T, format Format, filter Filter) string {
	t.Helper()
	view := newView(format, filter)
	var out strings.Builder
	for _, m := range story(t) {
		line, err := view.Line(m, noon.Add(3*time.Minute))
		if err != nil {
			line = "error: " + err.Error()
		}
		if line != "" {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

func TestText(t *testing.T) { golden(t, "story.txt", lines(t, Format{}, Filter{})) }
func TestColour(t *testing.T) {
	golden(t, "colour.txt", lines(t, Format{Painter: paint.Painter{On: true}},
		Filter{Pod: "web-0", Topics: []string{"podsync"}}))
}

func TestJSON(t *testing.T) {
	got := lines(t, Format{Style: JSON}, Filter{Topics: []string{"pod.update", "who"}})
	golden(t, "story.json", got)
	if strings.Contains(got, secret) {
		t.Error("the secret shows")
	}
	if open := lines(t, Format{Style: JSON, ShowEnv: true}, Filter{}); !strings.Contains(open, secret) {
		t.Error("--show-env doesn't show the secret")
	}
}

func TestTextNeverShowsSecretsOrControlCharacters(t *testing.T) {
	got := lines(t, Format{ShowEnv: true}, Filter{})
	if strings.Contains(got, secret) || strings.Contains(got, "\x1b") {
		t.Errorf("text shows what it must not:\n%s", got)
	}
}

func TestFilter(t *testing.T) {
	for name, c := range map[string]struct {
		filter Filter
		want   int
	}{
		"all":              {Filter{}, 31},
		"pod by name":      {Filter{Pod: "web-0"}, 18},
		"pod by full name": {Filter{Pod: "default/web-0"}, 18},
		"pod by UID":       {Filter{Pod: "u1"}, 18},
		"other namespace":  {Filter{Pod: "other/web-0"}, 0},
		"topic":            {Filter{Topics: []string{"pod.update"}}, 4},
		"topic group":      {Filter{Topics: []string{"pod"}}, 9},
		"two topics":       {Filter{Topics: []string{"volume", "node.pressure"}}, 4},
		"daemon":           {Filter{Daemon: "probe"}, 2},
	} {
		if got := strings.Count(lines(t, Format{}, c.filter), "\n"); got != c.want {
			t.Errorf("%s: %d lines, want %d", name, got, c.want)
		}
	}
}

func TestEveryTopicIsRendered(t *testing.T) {
	for _, name := range append(topicNames(), topic.VolumeSubPath.Name()) {
		if renderers[name] == nil {
			t.Errorf("topic %s isn't rendered", name)
		}
	}
	if _, err := (Filter{Topics: []string{"nonsense"}}).selected(); err == nil ||
		!strings.Contains(err.Error(), "pod.update") {
		t.Errorf("a topic that doesn't exist must be an error that lists the topics, got %v", err)
	}
}

func TestRunShowsLiveMessagesWithNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, probe, cli := shared.Conn("podsync"), shared.Conn("probe"), shared.Conn("cli")
		defer podsync.Close()
		defer probe.Close()
		defer cli.Close()
		if err := topic.PodUpdate.Writer(podsync).Set("u1",
			topic.Pod{Pod: examplePod(), Lifecycle: topic.Syncing}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var out bytes.Buffer
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, cli.Transport(), Options{Filter: Filter{Pod: "default/web-0"}}, &out)
		}()
		synctest.Wait()
		if err := topic.ProbeResult.Writer(probe).Set("u1.app.readiness", topic.Probe{Success: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := out.String(); strings.Count(got, "\n") != 1 ||
			!strings.Contains(got, "default/web-0  app readiness succeeds") {
			t.Errorf("shown: %q", got)
		}
	})
}

func FuzzLine(f *testing.F) {
	f.Add("pod.update.u1", []byte(`{"pod":{"metadata":{"name":"a"}}}`))
	f.Add("probe.result.u", []byte(`{}`))
	f.Add("health", []byte(`null`))
	f.Add("pleg.event.x", []byte(`{"containers":[{}],"sandboxes":[{}]}`))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		for _, format := range []Format{{}, {Style: JSON}, {Style: Wide}, {Style: Short}} {
			view := newView(format, Filter{})
			for range 2 {
				line, err := view.Line(bus.Message{Subject: subject, Data: data, Time: noon}, noon)
				if err == nil && strings.ContainsAny(line, "\n\x1b") {
					t.Fatalf("line %q", line)
				}
			}
		}
	})
}
