package podsync

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
)

// metrics compares series of kubelot-podsync with their values: name{label=value,...} in the order of the labels'
// names.
func (b *bed) metrics(want map[string]float64) {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			name := strings.TrimPrefix(f.GetName(), "kubelet_") + "{" + strings.Join(labels, ",") + "}"
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, value := range want {
		if v, known := got[name]; v != value || !known {
			b.t.Errorf("%s is %v (known: %v), want %v", name, v, known, value)
		}
	}
}

func TestPodsAreCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.orphan("stray", "u9")
		b.start(fromAPI, fromFile)
		b.node(2)
		p := pod("web", "u1")
		p.CreationTimestamp = metav1.Now()
		b.deliver(fromAPI, p)
		b.deliver(fromFile, pod("proxy", "u2"))
		b.wantRunning("proxy", "web")
		b.metrics(map[string]float64{
			"desired_pods{static=}": 1, "desired_pods{static=true}": 1, "active_pods{static=}": 1, "active_pods{static=true}": 1,
			"working_pods{config=desired,lifecycle=sync,static=}":     1,
			"working_pods{config=desired,lifecycle=sync,static=true}": 1,
			"orphaned_runtime_pods_total{}":                           1, "containers_per_pod_count{}": 2,
			"pod_worker_start_duration_seconds{}": 2,
			"started_pods_total{}":                2, "started_pods_errors_total{}": 0,
			"started_containers_total{container_type=container}": 2,
			"run_podsandbox_duration_seconds{runtime_handler=}":  2, "pod_start_duration_seconds{}": 2,
			"pod_start_total_duration_seconds{}": 0,
			// One more while the second pod waits for the end of the stray one, which has no place.
			"pod_worker_duration_seconds{operation_type=create}": 3,
		})

		// The API server's word of what runs ends the start. A second pod finds no room, and the first one goes.
		s, _ := get(b, topic.StatusPatch, "u1")
		p = p.DeepCopy()
		p.Status = s.Status
		b.deliver(fromAPI, p, pod("late", "u3"))
		b.wantFailed("u3", "OutOfpods")
		b.metrics(map[string]float64{
			"pod_start_total_duration_seconds{}": 1, "pod_start_sli_duration_seconds{}": 1,
			"admission_rejections_total{reason=OutOfpods}": 1,
			"active_pods{static=}":                         1, "desired_pods{static=}": 2,
		})
		p = p.DeepCopy()
		p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		list, err := b.client.ListContainers(b.t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			b.fake.Stubborn(c.GetId())
		}
		b.deliver(fromAPI, p)
		b.pass(10 * perPod) // the rest after the last count
		b.metrics(map[string]float64{"working_pods{config=desired,lifecycle=terminating,static=}": 1})
		b.pass(time.Minute)
		b.metrics(map[string]float64{"working_pods{config=desired,lifecycle=terminated,static=}": 1})
		b.deliver(fromAPI)
		b.pass(time.Minute)
		b.wantRunning("proxy")
		b.metrics(map[string]float64{
			"desired_pods{static=}": 0, "active_pods{static=}": 0, "working_pods{config=desired,lifecycle=sync,static=}": 0,
			"terminated_containers_total{container_type=container,exit_code=137,reason=Error}": 1,
			"restarted_pods_total{static=}": 0,
		})
	})
}

func TestPreemptionsAndResizesAreCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromAPI)
		b.node(2)
		first, second := asking(pod("first", "u1"), "1", 1), asking(pod("second", "u2"), "800m", 1)
		b.deliver(fromAPI, first, second)
		first = asking(first, "1500m", 2)
		b.deliver(fromAPI, first, second)
		b.metrics(map[string]float64{
			"container_requested_resizes_total{operation=increase,requirement=requests,resource=cpu}": 1,
			"pod_pending_resizes{reason=deferred}":                                                    1,
		})
		b.deliver(fromAPI, first)
		b.pass(time.Minute)
		b.metrics(map[string]float64{
			"pod_deferred_accepted_resizes_total{retry_trigger=pods_removed}": 1,
			"pod_resize_duration_milliseconds{success=true}":                  1,
		})
		critical := requesting(pod("critical", "u3"), "1")
		priority := int32(2000000000)
		critical.Spec.Priority = &priority
		b.deliver(fromAPI, first, critical)
		b.wantFailed("u1", "Preempting")
		b.metrics(map[string]float64{"preemptions{preemption_signal=cpu}": 1})
	})
}

// A static pod whose manifest comes back while it is being ended has the same UID.
func TestAPodThatComesAgainIsCounted(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start(fromFile)
		b.node(110)
		b.deliver(fromFile, pod("proxy", "u1"))
		b.wantRunning("proxy")
		b.fake.On("StopContainer", func(context.Context, any) error { time.Sleep(5 * time.Second); return nil })
		b.deliver(fromFile)
		b.deliver(fromFile, pod("proxy", "u1"))
		b.metrics(map[string]float64{"working_pods{config=orphan,lifecycle=terminating,static=true}": 1})
		b.pass(time.Minute)
		b.wantRunning("proxy")
		b.metrics(map[string]float64{"restarted_pods_total{static=true}": 1})
	})
}
