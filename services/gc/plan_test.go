package gc

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// The plan says what would be done, by the same decisions, and does nothing.
func TestPlan(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.dead("u1", 3)
		b.pod("u1", "1Mi", topic.Syncing)
		b.usage = map[string]int64{"u1": mib}
		b.run(func() {
			cli := b.bus.Conn("cli")
			defer cli.Close()
			b.after(time.Second)
			plan, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{})
			if err != nil || plan.Waiting == "" {
				t.Errorf("before sources are ready: %+v, %v", plan, err)
			}
			b.ready()
			b.after(time.Second)
			b.set(func() { b.memory = 50 * mib; b.deaf = true })
			b.after(time.Second)
			if _, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{}); !errors.Is(err, bus.ErrUnavailable) {
				t.Errorf("a plan without statistics: %v", err)
			}
			b.set(func() { b.deaf = false })
			plan, err = topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{Images: true})
			if err != nil {
				t.Fatal(err)
			}
			actions := map[topic.Action]int{}
			for _, d := range plan.Decisions {
				actions[d.Action]++
				if d.Reason == "" || d.At.IsZero() {
					t.Errorf("decision without a reason or a time: %+v", d)
				}
			}
			if actions[topic.ActionRemoveContainer] != 2 || actions[topic.ActionEvict] != 1 || actions[topic.ActionKeep] < 3 ||
				!strings.Contains(plan.Waiting, "must be for 10s") {
				t.Errorf("plan %+v", plan)
			}
			b.want("after it", b.inRuntime(), "3 containers, 1 sandboxes")
		})
	})
}

// The plan names who is over its limit on local storage, and says that pods are not the first to go for disk.
func TestPlanForDisk(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.ready()
		b.pod("hog", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Priority = new(int32(2_000_000_000)) // critical, so that nobody evicts it
			p.Spec.Volumes = []corev1.Volume{{
				Name: "data",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib,
					resource.BinarySI)}},
			}}
		})
		b.pod("over", "1Mi", topic.Syncing, func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{
				Name: "data",
				VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(mib,
					resource.BinarySI)}},
			}}
		})
		b.usage, b.volumes = map[string]int64{"hog": mib, "over": mib}, map[string]int64{"hog": 2 * mib, "over": 2 * mib}
		b.disk = 50 * mib
		b.run(func() {
			b.after(15 * time.Second)
			cli := b.bus.Conn("cli")
			defer cli.Close()
			plan, err := topic.GCPlan.Do(b.t.Context(), cli, topic.GCPlanRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var reasons []string
			for _, d := range plan.Decisions {
				if d.Action == topic.ActionEvict {
					reasons = append(reasons, d.Object+" "+d.Reason)
				}
			}
			got := strings.Join(reasons, "\n")
			for _, want := range []string{
				"unused images go first",
				`default/over Usage of EmptyDir volume "data" exceeds the limit`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("evictions %s\nlack %q", got, want)
				}
			}
			if strings.Contains(got, "default/hog") {
				t.Errorf("evictions %s: a critical pod is among them", got)
			}
		})
	})
}
