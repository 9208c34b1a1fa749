package podsapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
)

// want compares the code of a call's error, and that its text has a part.
func want(t *testing.T, err error, code codes.Code, part string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || !strings.Contains(s.Message(), part) {
		t.Errorf("the call ends with %v, want %v: %q", err, code, part)
	}
}

type stream = interface {
	Recv() (*podsv1alpha1.WatchPodsEvent, error)
}

func (b *bed) watch() stream {
	b.t.Helper()
	s, err := b.client.WatchPods(b.context(), &podsv1alpha1.WatchPodsRequest{})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// next compares the next event, in the words of the scenarios.
func (b *bed) next(s stream, want string) {
	b.t.Helper()
	e, err := s.Recv()
	if err != nil {
		b.t.Fatalf("instead of %s: %v", want, err)
	}
	got := e.GetType().String()
	if e.GetPod() != nil {
		got += " " + text(decode(b.t, e.GetPod()))
	}
	if got != want {
		b.t.Fatalf("the event is %q, want %q", got, want)
	}
}

func TestCalls(t *testing.T) {
	b := newBed(t, nil)
	sent := update("u2", "20")
	sent.Value.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox", TTY: true},
	}}
	b.pod(sent)
	b.pod(bus.Change[topic.Pod]{Synced: true})
	_, err := b.client.ListPods(b.context(), &podsv1alpha1.ListPodsRequest{})
	want(t, err, codes.Unavailable, "try again")
	_, err = b.client.GetPod(b.context(), &podsv1alpha1.GetPodRequest{PodUID: "u2"})
	want(t, err, codes.Unavailable, "try again")
	_, err = b.watch().Recv()
	want(t, err, codes.Unavailable, "try again")

	b.status(merged("u2", corev1.PodRunning, "21"))
	b.status(bus.Change[topic.Merged]{Synced: true})
	b.pod(update("u1", "10"))
	list, err := b.client.ListPods(b.context(), &podsv1alpha1.ListPodsRequest{})
	if err != nil || len(list.GetPods()) != 2 {
		t.Fatalf("%d pods, error %v; want 2", len(list.GetPods()), err)
	}
	if p := decode(t, list.GetPods()[0]); p.UID != "u1" || p.Status.Phase != corev1.PodPending {
		t.Errorf("the first pod is %s", text(p))
	}
	one, err := b.client.GetPod(b.context(), &podsv1alpha1.GetPodRequest{PodUID: "u2"})
	if err != nil {
		t.Fatal(err)
	}
	whole := sent.Value.Pod.DeepCopy()
	whole.Status, whole.ResourceVersion = merged("u2", corev1.PodRunning, "").Value.Status, "21"
	if got := decode(t, one.GetPod()); !equality.Semantic.DeepEqual(got, whole) {
		t.Errorf("the pod is\n%+v\nwant\n%+v", got, whole)
	}
	_, err = b.client.GetPod(b.context(), &podsv1alpha1.GetPodRequest{PodUID: "u3"})
	want(t, err, codes.NotFound, "pod with UID u3 not found")
	_, err = b.client.GetPod(b.context(), &podsv1alpha1.GetPodRequest{})
	want(t, err, codes.NotFound, "not found")
}

func TestWatch(t *testing.T) {
	b := newBed(t, nil)
	b.pod(update("u2", "20"))
	b.pod(update("u1", "10"))
	b.status(merged("u1", corev1.PodRunning, ""))
	b.sync()
	first := b.watch()
	b.next(first, "ADDED default/pod-u1 u1 rv=10 Running, 1 containers")
	b.next(first, "ADDED default/pod-u2 u2 rv=20 Pending, 1 containers")
	b.next(first, "INITIAL_SYNC_COMPLETE")
	b.status(merged("u2", corev1.PodRunning, "21"))
	b.next(first, "MODIFIED default/pod-u2 u2 rv=21 Running, 1 containers")

	second := b.watch()
	b.next(second, "ADDED default/pod-u1 u1 rv=10 Running, 1 containers")
	b.next(second, "ADDED default/pod-u2 u2 rv=21 Running, 1 containers")
	b.next(second, "INITIAL_SYNC_COMPLETE")
	b.pod(gone("u1"))
	b.pod(update("u3", "30"))
	for _, s := range []stream{first, second} {
		b.next(s, "DELETED default/pod-u1 u1 rv= , 0 containers")
		b.next(s, "ADDED default/pod-u3 u3 rv=30 Pending, 1 containers")
	}

	b.stop()
	for _, s := range []stream{first, second} {
		_, err := s.Recv()
		want(t, err, codes.Unavailable, "watch again")
	}
	if err := b.ended(); err != nil {
		t.Error(err)
	}
	if n := b.dropped(); n != 0 {
		t.Errorf("%v watches are counted as dropped", n)
	}
}

// TestASlowClientIsDropped has a client that doesn't read, and one that does.
func TestASlowClientIsDropped(t *testing.T) {
	b := newBed(t, nil)
	b.sync()
	slow, fast := b.watch(), b.watch()
	b.next(slow, "INITIAL_SYNC_COMPLETE")
	b.next(fast, "INITIAL_SYNC_COMPLETE")
	// What the transport holds for the slow one is far less than as many events again.
	kind := "ADDED"
	for i := range 2 * queueEvents {
		c := update("u1", fmt.Sprint(i))
		c.Value.Pod.Annotations["large"] = strings.Repeat("a", 8<<10)
		b.pod(c)
		b.next(fast, fmt.Sprintf("%s default/pod-u1 u1 rv=%d Pending, 1 containers", kind, i))
		kind = "MODIFIED"
	}
	if n := b.dropped(); n != 1 {
		t.Errorf("%v watches are counted as dropped, want 1", n)
	}
	// It gets the beginning without a gap, and then the error.
	kind = "ADDED"
	for i := 0; ; i++ {
		e, err := slow.Recv()
		if err != nil {
			want(t, err, codes.ResourceExhausted, "watch again")
			break
		}
		got := e.GetType().String() + " " + decode(t, e.GetPod()).ResourceVersion
		if want := fmt.Sprintf("%s %d", kind, i); got != want {
			t.Fatalf("the slow client gets %q, want %q", got, want)
		}
		kind = "MODIFIED"
	}
	// It may watch again.
	again := b.watch()
	b.next(again, fmt.Sprintf("ADDED default/pod-u1 u1 rv=%d Pending, 1 containers", 2*queueEvents-1))
}

// TestClientsThatGoAreForgotten begins and ends more watches than are possible at a time.
func TestClientsThatGoAreForgotten(t *testing.T) {
	b := newBed(t, nil)
	b.sync()
	for range 2 * maxWatchers {
		ctx, cancel := context.WithCancel(t.Context())
		s, err := b.client.WatchPods(ctx, &podsv1alpha1.WatchPodsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		b.next(s, "INITIAL_SYNC_COMPLETE")
		cancel()
		if _, err := s.Recv(); status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
		b.eventually(func() bool { return b.watches() == 0 })
	}
}

// ended is how Run has ended.
func (b *bed) ended() error {
	b.t.Helper()
	select {
	case err := <-b.end:
		return err
	case <-time.After(limit):
		b.t.Fatal("Run has not ended")
		return nil
	}
}

// watches is how many there are.
func (b *bed) watches() int {
	b.t.Helper()
	n, err := loop.Ask(b.context(), b.server.loop, func() int { return len(b.server.watchers.all) })
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bed) eventually(holds func() bool) {
	b.t.Helper()
	for until := time.Now().Add(limit); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			b.t.Fatal("it doesn't happen")
		}
	}
}

func TestASourceThatEndsEndsTheServer(t *testing.T) {
	b := newBed(t, nil)
	b.sync()
	s := b.watch()
	b.next(s, "INITIAL_SYNC_COMPLETE")
	close(b.source.statuses)
	_, err := s.Recv()
	want(t, err, codes.Unavailable, "watch again")
	if err := b.ended(); !errors.Is(err, errBusClosed) {
		t.Errorf("Run ends with %v, want that the bus is closed", err)
	}
}

// TestWithTheBus reads the real topics, and holds that a bus which has lost its state takes no pod away.
func TestWithTheBus(t *testing.T) {
	memory := bustest.New()
	podsync, statusd, conn := memory.Conn("podsync"), memory.Conn("status"), memory.Conn("resource")
	defer podsync.Close()
	defer statusd.Close()
	defer conn.Close()
	pods, statuses := topic.PodUpdate.Writer(podsync), topic.MergedStatus.Writer(statusd)
	set := func(uid, version string) {
		c := update(uid, version)
		c.Value.Source, c.Value.FirstSeen = topic.SourceAPI, time.Unix(1_800_000_000, 0)
		if err := pods.Set(uid, c.Value); err != nil {
			t.Fatal(err)
		}
	}
	set("u1", "10")
	if err := statuses.Set("u1", merged("u1", corev1.PodRunning, "11").Value); err != nil {
		t.Fatal(err)
	}
	for _, flush := range []func(context.Context) error{pods.Flush, statuses.Flush} {
		if err := flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b := newBed(t, FromBus(conn))
	b.eventually(func() bool {
		_, err := b.client.ListPods(b.context(), &podsv1alpha1.ListPodsRequest{})
		return err == nil
	})
	s := b.watch()
	b.next(s, "ADDED default/pod-u1 u1 rv=11 Running, 1 containers")
	b.next(s, "INITIAL_SYNC_COMPLETE")
	memory.LoseState()
	set("u2", "20")
	b.next(s, "ADDED default/pod-u2 u2 rv=20 Pending, 1 containers")
	if err := pods.Delete("u1"); err != nil {
		t.Fatal(err)
	}
	b.next(s, "DELETED default/pod-u1 u1 rv= , 0 containers")
}
