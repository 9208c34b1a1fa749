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

func pod(uid, name string, containers ...corev1.Container) topic.Pod {
	return topic.Pod{
		Pod:       &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{Containers: containers}},
		Lifecycle: topic.Syncing, FirstSeen: noon.Add(-90 * time.Second),
	}
}

func status(phase corev1.PodPhase, containers ...corev1.ContainerStatus) topic.PodStatus {
	return topic.PodStatus{Status: corev1.PodStatus{Phase: phase, PodIP: "10.0.0.9", ContainerStatuses: containers}}
}

func running(name, id string, restarts int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func world() World {
	always := corev1.ContainerRestartPolicyAlways
	probed := corev1.Container{Name: "app", ReadinessProbe: &corev1.Probe{}}
	sidecar := pod("u5", "sidecar", corev1.Container{Name: "app"})
	sidecar.Pod.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}
	sidecar.FirstSeen = noon.Add(-50 * time.Hour)
	return World{
		Sources: topic.Sources{Ready: true, Pods: []string{"u1", "u2", "u3", "u4", "u5", "u6"}},
		Updates: map[string]topic.Pod{
			"u1": pod("u1", "web", corev1.Container{Name: "a"}, corev1.Container{Name: "b"}),
			"u2": pod("u2", "unready", probed),
			"u3": pod("u3", "stale-probe", probed),
			"u4": pod("u4", "crashing", corev1.Container{Name: "app"}),
			"u5": sidecar,
			"u6": pod("u6", "new", corev1.Container{Name: "app"}),
			"u7": {Lifecycle: topic.Syncing}, // garbage: no pod in it
		},
		Statuses: map[string]topic.PodStatus{
			"u1": status(corev1.PodRunning, running("a", "1", 1), running("b", "2", 2)),
			"u2": status(corev1.PodRunning, running("app", "3", 0)),
			"u3": status(corev1.PodRunning, running("app", "4", 0)),
			"u4": status(corev1.PodRunning, corev1.ContainerStatus{Name: "app", RestartCount: 7, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}),
			"u5": status(corev1.PodRunning, running("app", "5", 0), running("side", "6", 0)),
		},
		Observations: map[string]topic.PodObservation{
			"u6": {Sandboxes: []topic.Sandbox{{IPs: []string{"10.0.0.7"}}}, Containers: []topic.Container{{ID: "8", Name: "app", State: topic.ContainerRunning}}},
		},
		Probes: map[string]topic.Probe{
			"u2.app.readiness": {ContainerID: "3", Success: false},
			"u3.app.readiness": {ContainerID: "an earlier container", Success: true},
		},
	}
}

func TestTable(t *testing.T) {
	got := Table(Build(world()), noon, paint.Painter{}) + "\n" + Table(nil, noon, paint.Painter{}) + "\n" +
		strings.ReplaceAll(Table(Build(world())[:2], noon, paint.Painter{On: true}), "\x1b", "ESC")
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

func TestSettled(t *testing.T) {
	w := world()
	settled, waiting := Settled(w, Build(w))
	want := []string{"default/crashing (CrashLoopBackOff, 0/1 ready)", "default/stale-probe (Running, 0/1 ready)", "default/unready (Running, 0/1 ready)"}
	if settled || !slices.Equal(waiting, want) {
		t.Errorf("settled %v, waiting for %q", settled, waiting)
	}
	w.Probes["u2.app.readiness"] = topic.Probe{ContainerID: "3", Success: true}
	w.Probes["u3.app.readiness"] = topic.Probe{ContainerID: "4", Success: true}
	w.Statuses["u4"] = status(corev1.PodSucceeded)
	if settled, waiting = Settled(w, Build(w)); !settled {
		t.Errorf("still waiting for %q", waiting)
	}
	w.Sources.Pods = append(w.Sources.Pods, "u8")
	if settled, waiting = Settled(w, Build(w)); settled || waiting[0] != "pod u8" {
		t.Errorf("a pod that no worker has yet must be waited for: %v %q", settled, waiting)
	}
	if settled, _ = Settled(World{}, nil); settled {
		t.Error("settled before the sources were read")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := bustest.New()
		podsync, cli := shared.Conn("podsync"), shared.Conn("cli")
		defer podsync.Close()
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
		if _, err := Wait(ctx, cli); !errors.Is(err, ErrNotSettled) || !strings.Contains(err.Error(), "default/web") {
			t.Fatalf("error %v", err)
		}
		set(topic.StatusPatch.Writer(podsync).Set("u1", status(corev1.PodRunning, running("a", "1", 0))))
		rows, err := Wait(t.Context(), cli)
		if err != nil || len(rows) != 1 || !rows[0].Done {
			t.Errorf("%+v %v", rows, err)
		}
	})
}
