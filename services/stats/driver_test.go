package stats

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
)

// The driver of a volume says how full it is, of a device too. When it says nothing, what it has said last counts, and
// the daemon says that it is silent.
func TestVolumesOfDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		var silent error
		ctx, cancel := context.WithCancel(t.Context())
		driver := n.bus.Conn("volume")
		served := make(chan error, 1)
		go func() {
			served <- topic.VolumeUsage.Serve(ctx, driver, func(_ context.Context, r topic.VolumeUsageRequest,
			) (topic.VolumeUsageReply, error) {
				if r.UID != cgrouptest.UID || r.Volume != "disk" {
					t.Errorf("asked for %+v", r)
				}
				return topic.VolumeUsageReply{Bytes: topic.VolumeAmount{Total: 3000, Available: 2000, Used: 1000}}, silent
			})
		}()
		n.claim()
		synctest.Wait()
		for _, silent = range []error{nil, errors.New("the driver doesn't answer")} {
			time.Sleep(time.Hour)
			s := n.summary(topic.SummaryRequest{})
			if len(s.Pods) != 1 || len(s.Pods[0].VolumeStats) != 1 {
				t.Fatalf("pods %+v; the daemon is %s: %s", s.Pods, n.health.get(), n.health.why())
			}
			v := s.Pods[0].VolumeStats[0]
			if v.Name != "disk" || *v.CapacityBytes != 3000 || *v.AvailableBytes != 2000 || *v.UsedBytes != 1000 ||
				v.PVCRef == nil || v.PVCRef.Name != "claim" {
				t.Errorf("with %v: %+v", silent, v)
			}
			want := topic.Healthy
			if silent != nil {
				want = topic.Degraded
			}
			if got := n.health.get(); got != want {
				t.Errorf("with %v the daemon is %s: %s", silent, got, n.health.why())
			}
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		driver.Close()
	})
}

// A question whose daemon was killed is never answered. The daemon that comes is asked, and not only minutes later.
func TestDriverAskedByAKilledDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		ctx, cancel := context.WithCancel(t.Context())
		driver := n.bus.Conn("volume")
		served := make(chan error, 1)
		var questions atomic.Int32
		go func() {
			served <- topic.VolumeUsage.Serve(ctx, driver, func(context.Context, topic.VolumeUsageRequest,
			) (topic.VolumeUsageReply, error) {
				if questions.Add(1) == 1 {
					<-ctx.Done() // it was killed
				}
				return topic.VolumeUsageReply{Bytes: topic.VolumeAmount{Total: 3000}}, nil
			})
		}()
		n.claim()
		synctest.Wait()
		n.summary(topic.SummaryRequest{})
		time.Sleep(askTimeout)
		s := n.summary(topic.SummaryRequest{})
		if len(s.Pods) != 1 || len(s.Pods[0].VolumeStats) != 1 || *s.Pods[0].VolumeStats[0].CapacityBytes != 3000 {
			t.Errorf("pods %+v; the daemon is %s: %s", s.Pods, n.health.get(), n.health.why())
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		driver.Close()
	})
}

// claim has the pod use a block device behind a claim, of which the driver says how full it is.
func (n *node) claim() {
	n.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: cgrouptest.UID}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
	}}}
	link := "/r/pods/" + cgrouptest.UID + "/volumeDevices/kubernetes.io~csi/pv"
	if err := errors.Join(
		set(n, "podsync", topic.PodUpdate, topic.Pod{Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
		set(n, "volume", topic.VolumeState, topic.PodVolumes{
			Ref: ref, Phase: topic.VolumeMounted,
			Volumes: map[string]topic.Volume{"disk": {
				Phase: topic.VolumeMounted, Device: link, PersistentVolume: "pv", Measured: true,
			}},
		}),
	); err != nil {
		n.t.Fatal(err)
	}
}
