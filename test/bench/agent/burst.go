package agent

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kubelot.dev/test/bench/measure"
)

// Burst measures n pods at once: until each is Ready, idle, and until each is gone.
func (b *Bench) Burst(ctx context.Context, n int) (measure.Figures, error) {
	b.Say("%d pods at once", n)
	return b.burst(ctx, fmt.Sprintf("burst.%d", n), fmt.Sprintf("burst%d", n), n, nil)
}

// Probed measures n pods at once with a readiness probe of the kind (exec, http or grpc) every second.
func (b *Bench) Probed(ctx context.Context, kind string, n int) (measure.Figures, error) {
	probe := map[string]func(*corev1.Pod){"exec": b.execProbe, "http": b.httpProbe, "grpc": b.grpcProbe}[kind]
	if probe == nil {
		return nil, fmt.Errorf("no such kind of probe: %s", kind)
	}
	b.Say("%d pods at once, with %s probes each second", n, kind)
	return b.burst(ctx, "probes."+kind, kind, n, probe)
}

func (b *Bench) burst(
	ctx context.Context, key, prefix string, n int, shape func(*corev1.Pod),
) (f measure.Figures, err error) {
	var names []string
	var starts, stops measure.Sample
	startCPU, err := b.cpuOf(func() error {
		names, starts, err = b.startAll(ctx, prefix, n, shape)
		return err
	})
	if err != nil {
		return nil, err
	}
	f = measure.Figures{}
	f.Time(key+".create", starts, "last", "p50")
	// What shapes pods gives them probes.
	if err := b.between(ctx, f, key, shape != nil); err != nil {
		return f, err
	}
	stopCPU, err := b.cpuOf(func() error {
		stops, err = b.stopAll(ctx, names)
		return err
	})
	if err != nil {
		return f, err
	}
	f.Time(key+".delete", stops, "last", "p50")
	if b.Agent != nil {
		f[key+".cpu.start"], f[key+".cpu.stop"] = startCPU.Seconds(), stopCPU.Seconds()
	}
	return f, nil
}

// between is what is measured of an agent while the pods of a burst run: with probes, or else idle.
func (b *Bench) between(ctx context.Context, f measure.Figures, key string, probed bool) error {
	if b.Agent == nil || b.Brief && !probed {
		return sleep(ctx, measure.Settle)
	}
	if err := b.rest(ctx, f, key, probed); err != nil {
		return err
	}
	pss, err := measure.PSS(b.Agent.PID())
	if err != nil {
		return err
	}
	f[key+".pss"] = float64(pss)
	return nil
}

// rest measures the agent's CPU in millicores with nothing to do, or nothing but probes, and then the runs of probes a
// second, without which the CPU says little. The first seconds belong to the start.
func (b *Bench) rest(ctx context.Context, f measure.Figures, key string, probed bool) error {
	if err := sleep(ctx, b.IdleFor/3); err != nil {
		return err
	}
	var before, after float64
	var err error
	if probed {
		if before, err = b.probeRuns(ctx); err != nil {
			return err
		}
	}
	begin := time.Now()
	used, err := b.cpuOf(func() error { return sleep(ctx, b.IdleFor) })
	if err != nil {
		return err
	}
	took := time.Since(begin).Seconds()
	f[key+".idle"] = 1000 * used.Seconds() / took
	if !probed {
		return nil
	}
	if after, err = b.probeRuns(ctx); err != nil {
		return err
	}
	f[key+".rate"] = (after - before) / took
	return nil
}

// probeRuns is how many probes the agent has run for the pods that it has, from the page that every kubelet serves.
func (b *Bench) probeRuns(ctx context.Context) (float64, error) {
	path := "/api/v1/nodes/" + b.Node + "/proxy/metrics/probes"
	data, err := b.Client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("get %s: %w", path, err)
	}
	runs, series := 0.0, 0
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "prober_probe_total{") {
			continue
		}
		// Values of labels have no spaces: they are names, and a container's kind of probe.
		value := line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:]
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return 0, fmt.Errorf("%s has a line without a number: %q", path, line)
		}
		runs, series = runs+n, series+1
	}
	if series == 0 {
		return 0, fmt.Errorf("%s has no runs of probes", path)
	}
	return runs, nil
}

// everySecond makes the handler the readiness probe of the pod's container.
func everySecond(pod *corev1.Pod, handler corev1.ProbeHandler) {
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: handler, PeriodSeconds: 1}
}

func (b *Bench) execProbe(pod *corev1.Pod) {
	b.shell(pod)
	everySecond(pod, corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}})
}

func (b *Bench) httpProbe(pod *corev1.Pod) {
	b.server(pod)
	everySecond(pod, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}})
}

func (b *Bench) grpcProbe(pod *corev1.Pod) {
	b.server(pod)
	everySecond(pod, corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 9090}})
}

// shell gives the pod a container with a shell, which ends at once on SIGTERM.
func (b *Bench) shell(pod *corev1.Pod) {
	pod.Spec.Containers[0].Image = b.ShellRef
	pod.Spec.Containers[0].Command = []string{"sh", "-c", `trap "exit 0" TERM; while :; do sleep 3600 & wait; done`}
}

// server gives the pod the server that probes ask, healthy.
func (b *Bench) server(pod *corev1.Pod) {
	pod.Spec.Containers[0].Image = b.ServerRef
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "touch /tmp/healthy; exec /testserver"}
}
