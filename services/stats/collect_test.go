package stats

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cri/cgroup/cgrouptest"
)

// The last readings of claims and logs are among the metrics. Showing them waits for no disk, and has the next ones
// read, without anybody who asks for a summary.
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
		synctest.Wait()
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

// What is shown was read by the collection before, where it was older than a minute.
func TestMetricsAreReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, cgrouptest.V1, "cgroupfs")
		defer n.stop()
		used := func() float64 {
			n.gathered()
			synctest.Wait()
			series := n.gathered()["kubelet_container_log_filesystem_used_bytes"]
			if len(series) != 1 {
				t.Fatalf("logs: %v", series)
			}
			return series[0].value
		}
		before := used()
		log := filepath.Join(n.logs, "ns_pod_"+cgrouptest.UID, "app", "1.log")
		if err := os.WriteFile(log, make([]byte, 8192), 0o600); err != nil {
			t.Fatal(err)
		}
		if again := used(); again != before {
			t.Errorf("%v bytes at once, want %v, which are new enough", again, before)
		}
		time.Sleep(2 * time.Minute)
		if later := used(); later <= before {
			t.Errorf("%v bytes later, want more than %v", later, before)
		}
	})
}
