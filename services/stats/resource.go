package stats

import (
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/services/stats/internal/text"
)

// entry is the node, a pod or a container of a summary, as /metrics/resource has it.
type entry struct {
	labels text.Labels
	start  metav1.Time
	cpu    *statsapi.CPUStats
	memory *statsapi.MemoryStats
	swap   *statsapi.SwapStats
}

// entries are the summary's containers and pods.
func entries(s *statsapi.Summary) (containers, pods []entry) {
	for i := range s.Pods {
		p := &s.Pods[i]
		pod := text.Pairs("namespace", p.PodRef.Namespace, "pod", p.PodRef.Name)
		pods = append(pods, entry{labels: pod, cpu: p.CPU, memory: p.Memory, swap: p.Swap})
		for j := range p.Containers {
			c := &p.Containers[j]
			containers = append(containers, entry{
				text.Pairs("container", c.Name).And(pod), c.StartTime,
				c.CPU, c.Memory, c.Swap,
			})
		}
	}
	return containers, pods
}

// writeResource writes the kubelet's resource metrics (KEP-727); a nil summary is one that could not be made.
func writeResource(to io.Writer, s *statsapi.Summary) error {
	w := text.NewWriter(to)
	failed := 1.0
	if s != nil {
		failed = 0
		containers, pods := entries(s)
		node := []entry{{cpu: s.Node.CPU, memory: s.Node.Memory, swap: s.Node.Swap}}
		writeUsage(w, "container", containers)
		w.Family("container_start_time_seconds", text.Gauge,
			"[STABLE] Start time of the container since the Unix epoch in seconds")
		for _, e := range containers {
			if e.start.Unix() > 0 {
				w.Sample(e.labels, float64(e.start.UnixNano())/float64(time.Second), time.Time{})
			}
		}
		w.Family("container_swap_limit_bytes", text.Gauge, "[ALPHA] How much swap the container may use, in bytes")
		for _, e := range containers {
			if e.swap != nil && e.swap.SwapAvailableBytes != nil {
				w.Sample(e.labels, float64(*e.swap.SwapAvailableBytes+deref(e.swap.SwapUsageBytes)), e.swap.Time.Time)
			}
		}
		writeUsage(w, "node", node)
		writeUsage(w, "pod", pods)
	}
	w.Family("resource_scrape_error", text.Gauge, "[STABLE] 1 if the usage of containers could not be read, 0 otherwise")
	w.Sample("", failed, time.Time{})
	return w.Flush()
}

// writeUsage writes the families that containers, pods and the node have in common.
func writeUsage(w *text.Writer, of string, list []entry) {
	w.Family(of+"_cpu_usage_seconds_total", text.Counter, "[STABLE] CPU time of the "+of+" in core-seconds")
	for _, e := range list {
		if e.cpu != nil && e.cpu.UsageCoreNanoSeconds != nil {
			w.Sample(e.labels, float64(*e.cpu.UsageCoreNanoSeconds)/float64(time.Second), e.cpu.Time.Time)
		}
	}
	w.Family(of+"_memory_working_set_bytes", text.Gauge, "[STABLE] Working set of the "+of+" in bytes")
	for _, e := range list {
		if e.memory != nil && e.memory.WorkingSetBytes != nil {
			w.Sample(e.labels, float64(*e.memory.WorkingSetBytes), e.memory.Time.Time)
		}
	}
	w.Family(of+"_swap_usage_bytes", text.Gauge, "[ALPHA] Swap that the "+of+" uses, in bytes")
	for _, e := range list {
		if e.swap != nil && e.swap.SwapUsageBytes != nil {
			w.Sample(e.labels, float64(*e.swap.SwapUsageBytes), e.swap.Time.Time)
		}
	}
}
