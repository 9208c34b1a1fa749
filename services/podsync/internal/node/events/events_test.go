package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
)

// A pod that waits for the resource daemon wakes it, and no other does.
func TestPodWakesTheResourceDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := bustest.New().Conn("podsync")
		defer conn.Close()
		r, woken := New(conn, nil, 0, "", slog.New(slog.DiscardHandler)), 0
		p := topic.Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "u"}}}
		p.Allocates = true
		r.wake = func() { woken++ }
		r.Pod(&p, nil)
		p.Allocates = false
		r.Pod(&p, nil)
		r.Pod(nil, &topic.APIPod{Ref: topic.Ref{Namespace: "ns", Name: "a", UID: "u"}})
		if woken != 1 {
			t.Errorf("it was woken %d times, want once", woken)
		}
	})
}

// A step says that it has begun when it takes its time, and always how it ended.
func TestOnlyASlowStepTellsOfItsBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.New()
		conn, reader := b.Conn("podsync"), b.Conn("cli")
		t.Cleanup(conn.Close)
		t.Cleanup(reader.Close)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var got []string
		steps := topic.PodStep.Subscribe(ctx, reader, bus.From{})
		go func() {
			for s := range steps {
				got = append(got, fmt.Sprintf("%s %s %s %s", s.Value.Name, s.Value.Phase, s.Value.Duration, s.Value.Error))
			}
		}()
		synctest.Wait()
		r := New(conn, nil, 0, "", slog.New(slog.DiscardHandler))
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
		_, quick := r.Step(ctx, pod, "quick", "", "")
		quick(nil)
		_, slow := r.Step(ctx, pod, "slow", "", "")
		time.Sleep(3 * time.Second)
		slow(errors.New("no network"))
		r.Step(ctx, pod, "hung", "", "")
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{"quick end 0s ", "slow begin 0s ", "slow end 3s no network", "hung begin 0s "}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
