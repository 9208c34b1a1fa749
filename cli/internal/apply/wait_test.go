package apply

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/pods"
)

// standing is a state with one pod, of which the status says this.
func standing(lifecycle topic.Lifecycle, status corev1.PodStatus) pods.State {
	u := live("u1", "default", "web-node-1", topic.SourceFile)
	u.Pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	u.Lifecycle = lifecycle
	return pods.State{
		Updates: map[string]topic.Pod{"u1": u}, Merged: map[string]topic.Merged{"u1": {Status: status}},
	}
}

var (
	isReady = corev1.PodStatus{
		Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true}},
	}
	isWaiting = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
	}}}
)

func TestStandings(t *testing.T) {
	ref := topic.Ref{Namespace: "default", Name: "web-node-1", UID: "u1"}
	renewed := ref
	renewed.UID = "u2"
	succeeded := corev1.PodStatus{Phase: corev1.PodSucceeded}
	failed := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	for name, c := range map[string]struct {
		state pods.State
		ref   topic.Ref
		judge func(pods.State, topic.Ref) Standing
		want  Standing
	}{
		"unseen": {pods.State{}, ref, Ready, Standing{Text: "waits for kubelot-podsync to see it"}},
		"before it": {
			standing(topic.Terminating, isReady), renewed, Ready,
			Standing{Text: "waits for the end of its earlier version, which is terminating"},
		},
		"waiting":   {standing(topic.Syncing, isWaiting), ref, Ready, Standing{Text: "ErrImagePull, 0 of 1 container ready"}},
		"ready":     {standing(topic.Syncing, isReady), ref, Ready, Standing{Done: true, Text: "is ready"}},
		"ending":    {standing(topic.Terminating, isReady), ref, Ready, Standing{Text: "Running, 1 of 1 container ready"}},
		"succeeded": {standing(topic.Terminated, succeeded), ref, Ready, Standing{Done: true, Text: "has succeeded"}},
		"failed": {
			standing(topic.Terminated, failed), ref, Ready, Standing{Failed: true, Text: "Evicted, 0 of 1 container ready"},
		},
		"gone":    {pods.State{}, ref, Gone, Standing{Done: true, Text: "is gone"}},
		"going":   {standing(topic.Terminating, isReady), ref, Gone, Standing{Text: "is terminating"}},
		"not yet": {standing(topic.Syncing, isReady), ref, Gone, Standing{Text: "waits for kubelot-podsync to end it"}},
	} {
		if got := c.judge(c.state, c.ref); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestAwait(t *testing.T) {
	ref := topic.Ref{Namespace: "default", Name: "web-node-1", UID: "u1"}
	for name, c := range map[string]struct {
		after time.Duration // until the pod is ready
		took  time.Duration
		told  []string
	}{
		"ready at last": {
			10 * time.Second, 10 * time.Second,
			[]string{"waits for kubelot-podsync to see it", "ErrImagePull, 0 of 1 container ready", "is ready"},
		},
		"not in time": {
			time.Hour, time.Minute, []string{"waits for kubelot-podsync to see it", "ErrImagePull, 0 of 1 container ready"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := bustest.New()
				podsync, status, cli := shared.Conn("podsync"), shared.Conn("status"), shared.Conn("cli")
				defer podsync.Close()
				defer status.Close()
				defer cli.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				updates, merged := topic.PodUpdate.Writer(podsync), topic.MergedStatus.Writer(status)
				say := func(s pods.State) {
					if err := errors.Join(updates.Set("u1", s.Updates["u1"]), merged.Set("u1", s.Merged["u1"])); err != nil {
						t.Error(err)
					}
				}
				defer time.AfterFunc(time.Second, func() { say(standing(topic.Syncing, isWaiting)) }).Stop()
				defer time.AfterFunc(c.after-lookEvery/2, func() { say(standing(topic.Syncing, isReady)) }).Stop()
				begun := time.Now()
				var told []string
				stands, err := Await(ctx, cli, []topic.Ref{ref}, Ready, func(_ topic.Ref, s Standing) {
					told = append(told, s.Text)
				})
				if err != nil || stands["u1"].Done != (c.after < time.Minute) || !slices.Equal(told, c.told) {
					t.Errorf("%+v, %v, told %q; want %q", stands, err, told, c.told)
				}
				if took := time.Since(begun); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}

// Without a bus there is nothing to say of any pod.
func TestAwaitWithoutABus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := bustest.New().Conn("cli")
		conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		stands, err := Await(ctx, conn, []topic.Ref{{UID: "u1"}}, Ready, func(topic.Ref, Standing) {})
		if err == nil || stands != nil {
			t.Errorf("%v, %v; want an error", stands, err)
		}
	})
}
