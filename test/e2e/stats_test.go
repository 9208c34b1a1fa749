package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/test/e2e/kit"
)

// burner uses known amounts of what is measured.
const burner = `
  containers:
  - name: burner
    image: busybox:1.36
    command: [sh, -c, "head -c 5000000 /dev/zero > /data/file; head -c 3000000 /dev/zero > /file; head -c 500000 /dev/zero | base64; head -c 20000000 /dev/zero > /memory/file; while :; do :; done"]
    resources: {limits: {cpu: 200m, memory: 64Mi}}
    volumeMounts: [{name: data, mountPath: /data}, {name: memory, mountPath: /memory}]
  volumes:
  - {name: data, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory}}
`

// summary reads the pod's part of the summary.
func summary(ctx context.Context, ns *kit.Namespace,
	name string,
) (s statsapi.Summary, p *statsapi.PodStats, err error) {
	page, err := bed.TryPage(ctx, "stats", "/stats/summary")
	if err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(page, &s); err != nil {
		return s, nil, err
	}
	for i := range s.Pods {
		if s.Pods[i].PodRef.Namespace == ns.Name && s.Pods[i].PodRef.Name == name {
			return s, &s.Pods[i], nil
		}
	}
	return s, nil, fmt.Errorf("the pod is missing in %d pods", len(s.Pods))
}

// within tells of a figure that isn't between its bounds.
func within(what string, have *uint64, low, high uint64) error {
	if have == nil || *have < low || *have > high {
		return fmt.Errorf("%s is %s, want %d to %d", what, show(have), low, high)
	}
	return nil
}

func show(n *uint64) string {
	if n == nil {
		return "absent"
	}
	return fmt.Sprint(*n)
}

// What a pod uses is what the summary says.
func TestStatsSummary(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("burner", burner))
	ns.Wait("burner", "ready", kit.Ready)
	kit.Eventually(t, "the figures of the pod", func() error {
		s, p, err := summary(t.Context(), ns, "burner")
		if err != nil {
			return err
		}
		if len(p.Containers) != 1 {
			return fmt.Errorf("the pod has %d containers", len(p.Containers))
		}
		c := p.Containers[0]
		if c.CPU == nil || c.Memory == nil || c.Rootfs == nil || c.Logs == nil || p.EphemeralStorage == nil ||
			p.Network == nil || p.ProcessStats == nil {
			return fmt.Errorf("figures are missing: %+v, of the pod: %+v", c, p)
		}
		volumes := map[string]*uint64{}
		for _, v := range p.VolumeStats {
			volumes[v.Name] = v.UsedBytes
		}
		for _, err := range []error{
			// A fifth of a core, of which a loaded machine may give a tenth.
			within("CPU use", c.CPU.UsageNanoCores, 20e6, 260e6),
			within("the pod's CPU use", p.CPU.UsageNanoCores, 20e6, 280e6),
			// The files in the memory volume are the container's memory.
			within("memory", c.Memory.WorkingSetBytes, 20e6, 40e6),
			within("memory left", c.Memory.AvailableBytes, 24e6, 48e6),
			within("writable layer", c.Rootfs.UsedBytes, 3e6, 31e5),
			within("log", c.Logs.UsedBytes, 6e5, 12e5),
			within("volume", volumes["data"], 5e6, 51e5),
			within("memory volume", volumes["memory"], 20e6, 201e5),
			within("local storage", p.EphemeralStorage.UsedBytes, 86e5, 96e5),
			within("processes", p.ProcessStats.ProcessCount, 1, 3),
			within("received bytes", p.Network.RxBytes, 1, 1e9),
		} {
			if err != nil {
				return err
			}
		}
		return within("the node's CPU use", s.Node.CPU.UsageNanoCores, *p.CPU.UsageNanoCores/2, 1e12)
	})
}

// The metrics are told of the pod under the names that metrics-server and dashboards ask for.
func TestStatsMetrics(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	ns.Apply(pod("plain", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	ns.Wait("plain", "ready", kit.Ready)
	labels := fmt.Sprintf(`{container="app",namespace=%q,pod="plain"} `, ns.Name)
	kit.Eventually(t, "the pod's metrics", func() error {
		resource, err := bed.TryPage(t.Context(), "stats", "/metrics/resource")
		cadvisor, err2 := bed.TryPage(t.Context(), "stats", "/metrics/cadvisor")
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for _, name := range []string{
			"container_cpu_usage_seconds_total", "container_memory_working_set_bytes",
			"container_start_time_seconds",
		} {
			if !strings.Contains(string(resource), "\n"+name+labels) {
				return fmt.Errorf("no %s%s in\n%s", name, labels, resource)
			}
		}
		found := 0
		for line := range strings.Lines(string(cadvisor)) {
			if strings.HasPrefix(line, "container_memory_usage_bytes{") && strings.Contains(line, `namespace="`+ns.Name+`"`) {
				found++
			}
		}
		if found != 3 {
			return fmt.Errorf("%d cgroups of the pod, want its own, its sandbox's and its container's", found)
		}
		return nil
	})
}

// Between two requests the daemon does next to nothing.
func TestStatsRest(t *testing.T) {
	bed.NotCompact(t, "the CPU time of one daemon can't be told from that of the others")
	// Pods of the tests before may still be going.
	kit.Eventually(t, "ten seconds without work", func() error {
		pid, err := bed.Daemon("stats")
		if err != nil {
			return err
		}
		before := cpuTicks(t, pid)
		time.Sleep(10 * time.Second)
		// A tick is 10 ms.
		if used := cpuTicks(t, pid) - before; used > 10 {
			return fmt.Errorf("%d ms of CPU time in 10 s without a request", 10*used)
		}
		return nil
	})
}

// cpuTicks is the process's CPU time in hundredths of a second.
func cpuTicks(t *testing.T, pid int) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	user, err := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return user + system
}
