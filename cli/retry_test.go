package cli

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

func TestRetry(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		ref := topic.Ref{Namespace: "default", Name: "web-n1", UID: "u1"}
		n.runs(ref, corev1.ConditionFalse)
		if err := topic.VolumeState.Writer(n.volume).Set("u1", topic.PodVolumes{Ref: ref, Volumes: map[string]topic.Volume{
			"data": {Phase: topic.VolumeFailed}, "fine": {Phase: topic.VolumeMounted},
		}}); err != nil {
			t.Fatal(err)
		}
		var asked topic.Retry
		answer := func(_ context.Context, r topic.Retry) (topic.RetryReply, error) {
			asked = r
			switch r.Container {
			case "none":
				return topic.RetryReply{}, bus.WithKind(bus.ErrInvalid, errors.New("the pod has no container none"))
			case "idle":
				return topic.RetryReply{}, nil
			}
			return topic.RetryReply{Ended: []topic.Backoff{
				{Reason: "create sandbox", Until: time.Now()},
				{Container: "app", Reason: "CrashLoopBackOff", Until: time.Now().Add(3 * time.Minute)},
			}}, nil
		}
		ctx, cancel := context.WithCancel(n.t.Context())
		var serving sync.WaitGroup
		defer serving.Wait()
		defer cancel()
		serving.Go(func() { _ = topic.PodRetry.Serve(ctx, n.podsync, answer) })
		synctest.Wait()

		report, err := retry(n.t.Context(), n.conn, "web", "")
		want := "pod default/web-n1: create sandbox has ended\ncontainer app: CrashLoopBackOff has ended, 3m0s early\n" +
			"volume data: can't be mounted; kubelot-volume tries it again by itself"
		if got := retryText(report, time.Now()); err != nil || got != want || asked.Ref != ref || report.verdict() != nil {
			t.Errorf("asked %+v, %v, got\n%s\nwant\n%s", asked, err, got, want)
		}
		report, err = retry(n.t.Context(), n.conn, "default/web-n1", "idle")
		if verdict := report.verdict(); err != nil || exitCode(verdict) != exitProblems || asked.Container != "idle" ||
			!strings.Contains(verdict.Error(), "was in no back-off: kubelot why default/web-n1") {
			t.Errorf("a pod without a back-off: %v, %v", err, verdict)
		}
		_, err = retry(n.t.Context(), n.conn, "u1", "none")
		if err == nil || err.Error() != "pod default/web-n1: the pod has no container none" {
			t.Errorf("a container that isn't there: %v", err)
		}
		if _, err = retry(n.t.Context(), n.conn, "nobody", ""); err == nil ||
			!strings.Contains(err.Error(), "no pod nobody") {
			t.Errorf("a pod that isn't there: %v", err)
		}
	})
}

// A call that falls into podsync's restart says so.
func TestRetryWhilePodsyncRestarts(t *testing.T) {
	onStandalone(t, func(n *standalone) {
		n.runs(topic.Ref{Namespace: "default", Name: "web-n1", UID: "u1"}, corev1.ConditionFalse)
		for name, serve := range map[string]func(context.Context, topic.Retry) (topic.RetryReply, error){
			"gone": nil,
			"stopping": func(context.Context, topic.Retry) (topic.RetryReply, error) {
				return topic.RetryReply{}, bus.WithKind(bus.ErrUnavailable, errors.New("podsync stops"))
			},
			"silent": func(context.Context, topic.Retry) (topic.RetryReply, error) {
				time.Sleep(2 * busPatience)
				return topic.RetryReply{}, nil
			},
		} {
			ctx, cancel := context.WithCancel(n.t.Context())
			var serving sync.WaitGroup
			if serve != nil {
				serving.Go(func() { _ = topic.PodRetry.Serve(ctx, n.podsync, serve) })
			}
			synctest.Wait()
			begun := time.Now()
			_, err := retry(n.t.Context(), n.conn, "web", "")
			if err == nil || !strings.Contains(err.Error(), "if it has just been restarted, try again") ||
				time.Since(begun) > busPatience {
				t.Errorf("%s: %v after %s", name, err, time.Since(begun))
			}
			cancel()
			serving.Wait()
		}
	})
}
