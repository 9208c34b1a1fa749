package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"kubelot.dev/test/vm/guest"
)

// nodePage is a page of the node's API, by way of the API server. A request that fails is tried again.
func nodePage(t testing.TB, path string) []byte {
	t.Helper()
	var data []byte
	eventually(t, path+" of the node's API", func(ctx context.Context) (err error) {
		request := bed.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + guest.Name + "/proxy/" + path)
		data, err = request.DoRaw(ctx)
		return err
	})
	return data
}

// summary is what the node says of itself and its pods.
func summary(t testing.TB) *statsapi.Summary {
	t.Helper()
	s, data := &statsapi.Summary{}, nodePage(t, "stats/summary")
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatalf("the node's summary: %v\n%s", err, data)
	}
	return s
}

// availableMemory is what the node says that it has, in bytes.
func availableMemory(t testing.TB) int64 {
	t.Helper()
	m := summary(t).Node.Memory
	if m == nil || m.AvailableBytes == nil || *m.AvailableBytes == 0 {
		t.Fatalf("no available memory in the node's summary: %+v", m)
	}
	return int64(*m.AvailableBytes)
}

// The node's API has the kernel's pressure stall information (PSI) of the node and of each pod, though no feature gate
// is set.
func TestPressureFigures(t *testing.T) {
	notQuick(t)
	ns := bed.Namespace(t)
	ns.Apply(`
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'while :; do :; done']
    resources: {limits: {cpu: 200m, memory: 32Mi}}
`)
	busy := ns.Running("busy")
	const files = "/proc/pressure/$r"
	filesOfPod := sliceOf(busy) + "/$r.pressure"
	eventually(t, "the pod to wait for a CPU", func(context.Context) error {
		if stalled(t, filesOfPod).cpu == 0 {
			return errors.New("it hasn't waited")
		}
		return nil
	})
	before, beforeOfPod := stalled(t, files), stalled(t, filesOfPod)
	var had, hadOfPod stalls
	eventually(t, "the summary to have the figures", func(context.Context) (err error) {
		if had, hadOfPod, err = told(summary(t), busy); err != nil {
			return err
		}
		return errors.Join(had.atLeast(before), hadOfPod.atLeast(beforeOfPod))
	})
	// The kernel's sums only grow.
	if err := errors.Join(stalled(t, files).atLeast(had), stalled(t, filesOfPod).atLeast(hadOfPod)); err != nil {
		t.Errorf("the summary has more than the kernel: %v", err)
	}
	metrics := string(nodePage(t, "metrics/cadvisor"))
	for _, name := range []string{
		"cpu_waiting", "cpu_stalled", "memory_waiting", "memory_stalled", "io_waiting", "io_stalled",
	} {
		if family := "container_pressure_" + name + "_seconds_total"; !strings.Contains(metrics, "\n"+family+"{") {
			t.Errorf("metrics/cadvisor has nothing of %s", family)
		}
	}
}

// stalls are how long some task has waited for each resource, in nanoseconds.
type stalls struct{ cpu, memory, io uint64 }

func (s stalls) atLeast(low stalls) error {
	if s.cpu < low.cpu || s.memory < low.memory || s.io < low.io {
		return fmt.Errorf("tasks waited %+v, want %+v at least", s, low)
	}
	return nil
}

// stalled reads the kernel's files, in whose path $r stands for the resource. They have microseconds.
func stalled(t testing.TB, path string) stalls {
	t.Helper()
	totals := strings.Fields(in(t, `for r in cpu memory io; do sed -n 's/^some .*total=//p' "`+path+`"; done`))
	if len(totals) != 3 {
		t.Fatalf("%s: %d figures, want 3", path, len(totals))
	}
	nanoseconds := func(i int) uint64 { return uint64(number(t, totals[i])) * 1000 }
	return stalls{cpu: nanoseconds(0), memory: nanoseconds(1), io: nanoseconds(2)}
}

// told are the figures of the node and of the pod.
func told(s *statsapi.Summary, p *corev1.Pod) (node, pod stalls, err error) {
	if node, err = some(s.Node.CPU, s.Node.Memory, s.Node.IO); err != nil {
		return node, pod, fmt.Errorf("the node: %w", err)
	}
	for _, one := range s.Pods {
		if one.PodRef.UID == string(p.UID) {
			pod, err = some(one.CPU, one.Memory, one.IO)
			return node, pod, err
		}
	}
	return node, pod, fmt.Errorf("pod %s isn't in the summary", p.Name)
}

// some are the figures of a summary's part.
func some(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, io *statsapi.IOStats) (stalls, error) {
	if cpu == nil || memory == nil || io == nil || cpu.PSI == nil || memory.PSI == nil || io.PSI == nil {
		return stalls{}, fmt.Errorf("without psi: cpu %+v, memory %+v, io %+v", cpu, memory, io)
	}
	return stalls{cpu: cpu.PSI.Some.Total, memory: memory.PSI.Some.Total, io: io.PSI.Some.Total}, nil
}
