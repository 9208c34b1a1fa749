package pods

import (
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// A pod of the node's manifests may have any name in what podsync says of it.
func TestTableEscapes(t *testing.T) {
	row := Row{Ref: topic.Ref{Namespace: "\x1b[2J", Name: "a\x07b"}, Phase: "\x1b", IP: "\x1b[1m"}
	if got := Table([]Row{row}, noon, paint.Painter{}); strings.ContainsAny(got, "\x1b\x07") {
		t.Errorf("what others have written moves the cursor: %q", got)
	}
}

func pod(uid, name string, containers ...corev1.Container) topic.Pod {
	return topic.Pod{
		Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
			Spec:       corev1.PodSpec{Containers: containers},
		},
		Lifecycle: topic.Syncing, FirstSeen: noon.Add(-90 * time.Second),
	}
}

func status(phase corev1.PodPhase, containers ...corev1.ContainerStatus) topic.PodStatus {
	return topic.PodStatus{Status: corev1.PodStatus{Phase: phase, PodIP: "10.0.0.9", ContainerStatuses: containers}}
}

func running(name, id string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, ContainerID: "containerd://" + id, RestartCount: restarts,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}
}

// merged has the computed status say which containers are ready.
func merged(s topic.PodStatus, ready ...string) topic.Merged {
	status := *s.Status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for i := range list {
			list[i].Ready = slices.Contains(ready, list[i].Name)
		}
	}
	return topic.Merged{Status: status}
}

func testState() State {
	always := corev1.ContainerRestartPolicyAlways
	probed := corev1.Container{Name: "app", ReadinessProbe: &corev1.Probe{}}
	sidecar := pod("u5", "sidecar", corev1.Container{Name: "app"})
	sidecar.Pod.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}
	sidecar.FirstSeen = noon.Add(-50 * time.Hour)
	crash := status(corev1.PodRunning, corev1.ContainerStatus{
		Name: "app", RestartCount: 7,
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	})
	both := status(corev1.PodRunning, running("app", "5", 0))
	both.Status.InitContainerStatuses = []corev1.ContainerStatus{running("side", "6", 0)}
	return State{
		Sources: topic.Sources{Ready: true, Pods: []string{"u1", "u2", "u3", "u4", "u5", "u6"}},
		Updates: map[string]topic.Pod{
			"u1": pod("u1", "web", corev1.Container{Name: "a"}, corev1.Container{Name: "b"}),
			"u2": pod("u2", "unready", probed),
			"u3": pod("u3", "not-merged", probed),
			"u4": pod("u4", "crashing", corev1.Container{Name: "app"}),
			"u5": sidecar,
			"u6": pod("u6", "new", corev1.Container{Name: "app"}),
			"u7": {Lifecycle: topic.Syncing}, // garbage: no pod in it
		},
		Statuses: map[string]topic.PodStatus{
			"u1": status(corev1.PodRunning, running("a", "1", 1), running("b", "2", 2)),
			"u2": status(corev1.PodRunning, running("app", "3", 0)),
			"u3": status(corev1.PodRunning, running("app", "4", 0)),
			"u4": crash,
			"u5": both,
		},
		Merged: map[string]topic.Merged{
			"u1": merged(status(corev1.PodRunning, running("a", "1", 1), running("b", "2", 2)), "a", "b"),
			"u2": merged(status(corev1.PodRunning, running("app", "3", 0))),
			"u4": merged(crash),
			"u5": merged(both, "app", "side"),
		},
		Observations: map[string]topic.PodObservation{
			"u6": {
				Sandboxes:  []topic.Sandbox{{IPs: []string{"10.0.0.7"}}},
				Containers: []topic.Container{{ID: "8", Name: "app", State: topic.ContainerRunning}},
			},
		},
	}
}

func TestTable(t *testing.T) {
	got := Table(Build(testState()), noon, paint.Painter{}) + "\n" + Table(nil, noon, paint.Painter{}) + "\n" +
		strings.ReplaceAll(Table(Build(testState())[:2], noon, paint.Painter{On: true}), "\x1b", "ESC")
	path := filepath.Join("testdata", "table.txt")
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
		t.Errorf("table differs (go test -rewrite, then read the diff):\n%s", got)
	}
}

// A pod that the node ends says why, before that is told with its phase.
func TestAPodThatIsEvictedSaysSo(t *testing.T) {
	w := testState()
	computed := w.Statuses["u1"]
	computed.Status.Reason = "Evicted"
	w.Statuses["u1"] = computed
	for _, row := range Build(w) {
		if row.UID == "u1" && (row.Phase != "Evicted" || row.Ready != 2) {
			t.Errorf("%+v", row)
		}
	}
}

func TestSettled(t *testing.T) {
	w := testState()
	settled, waiting := allRun(w, Build(w))
	want := []string{
		"default/crashing (CrashLoopBackOff, 0/1 ready)", "default/new (Unknown, 0/1 ready)",
		"default/not-merged (Running, 0/1 ready)",
		"default/unready (Running, 0/1 ready)",
	}
	if settled || !slices.Equal(waiting, want) {
		t.Errorf("settled %v, waiting for %q", settled, waiting)
	}
	w.Merged["u2"] = merged(w.Statuses["u2"], "app")
	w.Merged["u3"] = merged(w.Statuses["u3"], "app")
	w.Merged["u4"] = merged(status(corev1.PodSucceeded))
	w.Merged["u6"] = merged(status(corev1.PodRunning, running("app", "8", 0)), "app")
	if settled, waiting = allRun(w, Build(w)); !settled {
		t.Errorf("still waiting for %q", waiting)
	}
	w.Sources.Pods = append(w.Sources.Pods, "u8")
	if settled, waiting = allRun(w, Build(w)); settled || waiting[0] != "pod u8" {
		t.Errorf("a pod that no worker has yet must be waited for: %v %q", settled, waiting)
	}
	if settled, _ = allRun(State{}, nil); settled {
		t.Error("settled before the sources were read")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, daemon, cli := shared.Conn("podsync"), shared.Conn("status"), shared.Conn("cli")
		defer podsync.Close()
		defer daemon.Close()
		defer cli.Close()
		set := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		set(topic.PodSources.Writer(podsync).Set("", topic.Sources{Ready: true, Pods: []string{"u1"}}))
		set(topic.PodUpdate.Writer(podsync).Set("u1", pod("u1", "web", corev1.Container{Name: "a"})))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := Wait(ctx, cli); !errors.Is(err, errNotSettled) || !strings.Contains(err.Error(), "default/web") {
			t.Fatalf("error %v", err)
		}
		set(topic.StatusPatch.Writer(podsync).Set("u1", status(corev1.PodRunning, running("a", "1", 0))))
		shortly, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := Wait(shortly, cli); !errors.Is(err, errNotSettled) {
			t.Fatalf("error %v, though nobody has said that the pod is ready", err)
		}
		set(topic.MergedStatus.Writer(daemon).Set("u1", merged(status(corev1.PodRunning, running("a", "1", 0)), "a")))
		rows, err := Wait(t.Context(), cli)
		if err != nil || len(rows) != 1 || !rows[0].Done {
			t.Errorf("%+v %v", rows, err)
		}
	})
}
