package status

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// wantUnwritten asks as gc does at the end of a shutdown.
func (r *rig) wantUnwritten(outage string, want ...string) {
	r.t.Helper()
	conn := r.bus.Conn("gc")
	defer conn.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
	defer cancel()
	got, err := topic.StatusUnwritten.Do(ctx, conn, topic.UnwrittenRequest{UIDs: []string{uid, "nobody"}})
	want = append(want, "nobody")
	if err != nil || !slices.Equal(got.UIDs, want) || !strings.Contains(got.Outage, outage) ||
		(outage == "") != (got.Outage == "") {
		r.t.Errorf("unwritten are %q, outage %q, %v; want %q, %q", got.UIDs, got.Outage, err, want, outage)
	}
}

func finished(s topic.PodStatus) topic.PodStatus {
	s.Finished = true
	return s
}

func TestAPodIsWrittenOnceTheAPIServerHasItsLastStatus(t *testing.T) {
	p := apiPod()
	server := newServer(p.Pod)
	run(t, server, func(r *rig) {
		stop := r.start()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantUnwritten("", uid) // it has not ended
		server.setDown(true)
		r.must(r.patches.Set(uid, finished(patchOf(corev1.PodFailed, exited("app", 143)))))
		r.wantUnwritten("connection refused", uid)
		server.setDown(false)
		time.Sleep(retryMax)
		synctest.Wait()
		r.wantUnwritten("")
		stop()
		// The next process asks the API server before it is sure.
		server.setDown(true)
		stop = r.start()
		r.wantUnwritten("connection refused", uid)
		server.setDown(false)
		time.Sleep(retryMax)
		synctest.Wait()
		r.wantUnwritten("")
		stop()
	})
}

// Nobody waits for what is never written: a pod that is gone at the API server, a status that it doesn't keep.
func TestNobodyWaitsForWhatIsNeverWritten(t *testing.T) {
	deleted := metav1.NewTime(t0)
	p := apiPod(func(p *corev1.Pod) { p.DeletionTimestamp = &deleted })
	run(t, newServer(p.Pod), func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, finished(patchOf(corev1.PodFailed, exited("app", 143)))))
		r.wantUnwritten("")
		r.must(r.pods.objects.Delete(uid))
		r.wantUnwritten("")
	})
	dropping := newServer(p.Pod)
	dropping.forgets = func(s *corev1.PodStatus) { s.Message = "" }
	run(t, dropping, func(r *rig) {
		defer r.start()()
		last := finished(patchOf(corev1.PodFailed, exited("app", 143)))
		last.Status.Message = "Pod was terminated in response to imminent node shutdown."
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, last))
		time.Sleep(time.Minute)
		synctest.Wait()
		r.wantUnwritten("")
	})
	run(t, nil, func(r *rig) {
		defer r.start()()
		r.must(r.pods.Set(uid, p), r.patches.Set(uid, patchOf(corev1.PodRunning, running("app", "one"))))
		r.wantUnwritten("", uid) // without an API server, too, its end is waited for
		r.must(r.patches.Set(uid, finished(patchOf(corev1.PodFailed, exited("app", 143)))))
		r.wantUnwritten("")
	})
}

// A static pod is written where its mirror pod has its status.
func TestAStaticPodIsWrittenInItsMirrorPod(t *testing.T) {
	p, patch := staticPod()
	static := string(p.Pod.UID)
	server := newServer()
	run(t, server, func(r *rig) {
		defer r.start()()
		ask := func() []string {
			conn := r.bus.Conn("gc")
			defer conn.Close()
			got, err := topic.StatusUnwritten.Do(r.t.Context(), conn, topic.UnwrittenRequest{UIDs: []string{static}})
			if err != nil {
				t.Error(err)
			}
			return got.UIDs
		}
		r.must(r.sources.Set("", topic.Sources{Ready: true, Pods: []string{static}}), r.pods.Set(static, p),
			r.patches.Set(static, finished(patch)))
		if got := ask(); len(got) != 0 {
			t.Errorf("unwritten are %q, though no mirror pod can be made without a Node", got)
		}
		server.setDown(true)
		r.must(r.node.Set("", registeredNode()))
		if got := ask(); len(got) != 1 {
			t.Errorf("unwritten are %q, want the pod whose mirror pod is to be made", got)
		}
		server.setDown(false)
		time.Sleep(retryMax)
		synctest.Wait()
		if got := ask(); len(got) != 0 {
			t.Errorf("unwritten are %q, though the mirror pod has the status", got)
		}
	})
}
