package restart

import (
	"context"
	"errors"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a pod with these containers, those that begin with "init" or "side" before the others.
func pod(namespace, name, uid string, containers ...string) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
	for _, c := range containers {
		switch {
		case strings.HasPrefix(c, "init"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c})
		case strings.HasPrefix(c, "side"):
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: c, RestartPolicy: &always})
		default:
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c})
		}
	}
	return p
}

func TestPick(t *testing.T) {
	five, never := int64(5), corev1.ContainerRestartPolicyNever
	graceful, once := pod("a", "graceful", "g", "app"), pod("a", "once", "o", "app")
	mixed := pod("a", "mixed", "m", "x", "y")
	graceful.Spec.TerminationGracePeriodSeconds = &five
	once.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	mixed.Spec.RestartPolicy = corev1.RestartPolicyAlways
	mixed.Spec.Containers[1].RestartPolicy = &never
	updates := map[string]topic.Pod{"nothing": {}}
	for _, p := range []*corev1.Pod{
		graceful, once, mixed, pod("a", "web", "w", "init", "side", "app", "log"), pod("a", "twin", "t1", "app"),
		pod("b", "twin", "t2", "app"), pod("a", "down", "d", "app"), pod("a", "again", "n2", "app"),
	} {
		updates[string(p.UID)] = topic.Pod{Pod: p, Lifecycle: topic.Syncing}
	}
	updates["e"] = topic.Pod{Pod: pod("a", "ending", "e", "app"), Lifecycle: topic.Terminating}
	updates["n1"] = topic.Pod{Pod: pod("a", "again", "n1", "app"), Lifecycle: topic.Terminated}
	observations := map[string]topic.PodObservation{}
	for uid := range updates {
		observations[uid] = topic.PodObservation{Containers: []topic.Container{
			{Name: "side", ID: uid + "-side", State: topic.ContainerRunning},
			{Name: "app", ID: uid + "-2", State: topic.ContainerRunning},
			{Name: "x", ID: "x", State: topic.ContainerRunning},
			{Name: "app", ID: uid + "-1", State: topic.ContainerExited},
		}}
	}
	observations["d"] = topic.PodObservation{Containers: []topic.Container{
		{Name: "app", ID: "2", State: topic.ContainerExited}, {Name: "app", ID: "1", State: topic.ContainerRunning},
	}}
	for _, c := range []struct{ pod, container, want string }{
		{"graceful", "", "g-2 5s"},
		{"a/graceful", "app", "g-2 5s"},
		{"g", "app", "g-2 5s"},
		{"web", "app", "w-2 30s"},
		{"web", "side", "w-side 30s"},
		{"mixed", "x", "x 30s"},
		{"b/twin", "", "t2-2 30s"},
		{"again", "", "n2-2 30s"},
		{"web", "", "name a container with --container: the pod has app, log"},
		{"web", "init", "init is an init container"},
		{"web", "nope", "the pod has no container nope, only: app, log"},
		{"web", "log", "container log of pod a/web doesn't run: kubelot why a/web says why"},
		{"down", "", "container app of pod a/down doesn't run"},
		{"once", "", "the restart policy OnFailure"},
		{"mixed", "y", "the restart policy Never"},
		{"twin", "", "2 pods are called twin, such as a/twin and b/twin"},
		{"ending", "", "pod a/ending is ending"},
		{"nobody", "", "this node knows no pod nobody"},
		{"x/web", "", "this node knows no pod x/web"},
	} {
		target, err := Pick(updates, observations, c.pod, c.container)
		got := target.ID + " " + target.Grace.String()
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s %s: %q, want %q", c.pod, c.container, got, c.want)
		}
	}
}

func TestAwait(t *testing.T) {
	target := Target{Ref: topic.Ref{Namespace: "a", Name: "web", UID: "w"}, Container: "app", ID: "1"}
	for name, c := range map[string]struct {
		then topic.Container
		want string
	}{
		"successor":       {topic.Container{Name: "app", ID: "2", State: topic.ContainerRunning}, "2"},
		"not yet running": {topic.Container{Name: "app", ID: "2", State: topic.ContainerCreated}, ""},
		"another one":     {topic.Container{Name: "log", ID: "2", State: topic.ContainerRunning}, ""},
		"still the old":   {topic.Container{Name: "app", ID: "1", State: topic.ContainerRunning}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			shared := bustest.New()
			pleg, cli := shared.Conn("pleg"), shared.Conn("cli")
			defer pleg.Close()
			defer cli.Close()
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("waited a minute"))
			defer cancel()
			time.AfterFunc(time.Second, func() {
				observation := topic.PodObservation{Ref: target.Ref, Containers: []topic.Container{c.then}}
				if err := topic.PLEGEvent.Writer(pleg).Set("w", observation); err != nil {
					t.Error(err)
				}
			})
			id, err := Await(ctx, cli, target)
			if id != c.want || (err == nil) != (c.want != "") {
				t.Errorf("%s: %q, %v", name, id, err)
			}
			if err != nil && !strings.Contains(err.Error(), "waited a minute: kubelot why a/web") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
