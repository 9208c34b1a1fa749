package csi

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/volume/internal/plugin"
)

func TestUnusedVolumesThatHaveGoneAreForgotten(t *testing.T) {
	now := time.Now()
	u := unused{
		"gone":    {failures: 1, notBefore: now.Add(-time.Second)},
		"at work": {busy: true},
		"failed":  {failures: 1, notBefore: now.Add(time.Minute)},
	}
	if due := u.look([]string{"failed"}, now); len(due) > 0 {
		t.Errorf("due are %v, want none", due)
	}
	if u["gone"] != nil || u["at work"] == nil || u["failed"] == nil {
		t.Errorf("remembered are %v, want what is at work and what is there", u)
	}
	if pause := u.pause(now); pause != time.Minute {
		t.Errorf("the next look is in %s, want 1m", pause)
	}
}

// A pod whose volume is still being unstaged after its last pod is told which driver hasn't answered.
func TestWhoWaitsForAnUnstageIsToldOfTheDriver(t *testing.T) {
	b := newBed(t, unattached())
	b.claims("u1", "")
	b.gives("u1")
	b.node.hang = "unstage"
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.volumes.Run(ctx) })
	<-b.node.entered
	calls, mounted := make(chan *topic.DriverCall, 100), make(chan error)
	watched := plugin.Watched(t.Context(), "ns/p", func(c *topic.DriverCall) { calls <- c })
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h/1"}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u2"}}
	go func() {
		_, err := b.volumes.MountPersistent(watched, plugin.Request{Pod: pod, Calls: silent{}}, pv, false)
		mounted <- err
	}()
	select {
	case c := <-calls:
		if c == nil || c.Driver != "d" || c.Call != "NodeUnstageVolume" || c.Pod != "" || c.Since.IsZero() {
			t.Errorf("told of %+v", c)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is told")
	}
	close(b.node.goOn)
	if err := <-mounted; err != nil {
		t.Error(err)
	}
	cancel()
	running.Wait()
}
