package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

// What was measured of a traced pod leads to its trace, whatever was measured.
func TestExemplars(t *testing.T) {
	const uid, trace = "4f7c1a52-0c5e-4a6e-9d0e-2f1f5b1c7a11", "4f7c1a520c5e4a6e9d0e2f1f5b1c7a11"
	for sampling, want := range map[topic.Sampling]string{0: "", 1_000_000: trace} {
		r := prometheus.NewRegistry()
		m, err := New(r, sampling)
		if err != nil {
			t.Fatal(err)
		}
		p, now := testPod(), time.Now()
		p.UID = uid
		m.WorkerStarted(p, now)
		m.Appeared(p)
		m.Pulled(p, now, 1)
		m.RanSandbox(uid, "", time.Second, nil)
		m.Worked(uid, "create", time.Second)
		m.Done(Action{Pod: p, Kind: plan.ResizePod, Err: errors.New("no")})
		running := corev1.ContainerState{
			Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(time.Hour))},
		}
		status := corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: now},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: running}},
		}
		m.Stated(uid, now, &corev1.PodStatus{}, &status)
		p.Status = status
		m.Seen(p, &topic.PodObservation{})

		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, f := range families {
			for _, bucket := range f.GetMetric()[0].GetHistogram().GetBucket() {
				for _, label := range bucket.GetExemplar().GetLabel() {
					found[f.GetName()] = label.GetName() + "=" + label.GetValue()
				}
			}
			ofPods := f.GetType() == dto.MetricType_HISTOGRAM && f.GetName() != "kubelet_containers_per_pod_count"
			got := strings.TrimPrefix(found[f.GetName()], "trace_id=")
			if ofPods && f.GetMetric()[0].GetHistogram().GetSampleCount() > 0 && got != want {
				t.Errorf("sampling %d: the exemplar of %s is %q, want %q", sampling, f.GetName(), got, want)
			}
		}
		if n := len(found); want != "" && n != 8 {
			t.Errorf("%d families have exemplars, want 8: %v", n, found)
		}
	}
}
