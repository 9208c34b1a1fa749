package stats

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
)

// The last readings of claims and logs are among the metrics, and showing them reads nothing.
func TestVolumeAndLogMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: cgrouptest.UID}}
		claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}
		elsewhere := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: "elsewhere",
		}}
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "a", VolumeSource: claim},
			{Name: "b", VolumeSource: claim},
			{Name: "c", VolumeSource: elsewhere},
		}
		mounted := topic.Volume{Phase: topic.VolumeMounted, HostPath: n.volume}
		hostPath := topic.Volume{Phase: topic.VolumeMounted, HostPath: n.volume, PersistentVolume: "pv"}
		if err := errors.Join(
			set(n, "podsync", topic.PodUpdate, topic.Pod{Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing}),
			set(n, "volume", topic.VolumeState, topic.PodVolumes{
				Ref: ref, Phase: topic.VolumeMounted,
				Volumes: map[string]topic.Volume{"a": mounted, "b": mounted, "c": hostPath},
			}),
		); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := n.gathered(); len(got["kubelet_volume_stats_used_bytes"])+
			len(got["kubelet_container_log_filesystem_used_bytes"]) > 0 {
			t.Errorf("before anything was read: %v", got)
		}
		n.summary(topic.SummaryRequest{})
		time.Sleep(time.Hour)
		got := n.gathered()
		for _, name := range []string{
			"capacity_bytes", "available_bytes", "used_bytes", "inodes",
			"inodes_free", "inodes_used",
		} {
			series := got["kubelet_volume_stats_"+name]
			if len(series) != 1 || series[0].value <= 0 || series[0].labels["namespace"] != "ns" ||
				series[0].labels["persistentvolumeclaim"] != "claim" {
				t.Errorf("%s: %v", name, series)
			}
		}
		series := got["kubelet_container_log_filesystem_used_bytes"]
		if len(series) != 1 || series[0].value != 20480 || series[0].labels["uid"] != cgrouptest.UID ||
			series[0].labels["pod"] != "pod" || series[0].labels["container"] != "app" || series[0].labels["namespace"] != "ns" {
			t.Errorf("logs: %v", series)
		}
	})
}

// gathered are the daemon's own metrics.
func (n *node) gathered() scraped {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	all := scraped{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			s := sample{labels: map[string]string{}, value: m.GetGauge().GetValue()}
			for _, pair := range m.GetLabel() {
				s.labels[pair.GetName()] = pair.GetValue()
			}
			all[family.GetName()] = append(all[family.GetName()], s)
		}
	}
	return all
}
