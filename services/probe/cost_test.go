package probe

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/memory"
	"kubelot.dev/services/probe/internal/check"
)

// socketVariable makes the test's executable a container runtime: the benchmarks measure the CPU time of
// their own process, which must not have the runtime's in it.
const socketVariable = "KUBELOT_PROBE_TEST_RUNTIME"

const (
	costPods = 100
	// costTime is how long a cost is measured, costSettle how long the probes run before.
	costTime, costSettle = 20 * time.Second, 3 * time.Second
	// quick commands are so short that all probes run in time on a machine with two cores, slow ones so long that most are
	// always late.
	quick, slow = 12 * time.Millisecond, 60 * time.Millisecond
)

// execRuntime answers ExecSync, with commands that take so long.
type execRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	takes time.Duration
}

func (r execRuntime) ExecSync(context.Context, *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	time.Sleep(r.takes)
	return &runtimeapi.ExecSyncResponse{}, nil
}

// serveRuntime is the process of the runtime that the variable's value describes: how long commands take, and its
// socket.
func serveRuntime(value string) {
	takes, socket, _ := strings.Cut(value, " ")
	duration, err := time.ParseDuration(takes)
	if err != nil {
		panic(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, execRuntime{takes: duration})
	panic(server.Serve(listener))
}

// startRuntime runs the runtime as a process and returns its socket.
func startRuntime(b *testing.B, takes time.Duration) string {
	b.Helper()
	socket := filepath.Join(b.TempDir(), "s")
	server := exec.CommandContext(b.Context(), os.Args[0])
	server.Env = append(os.Environ(), socketVariable+"="+takes.String()+" "+socket)
	server.Stderr = os.Stderr
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for range 500 {
		if conn, err := (&net.Dialer{}).DialContext(b.Context(), "unix", socket); err == nil {
			_ = conn.Close()
			return socket
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.Fatal("the runtime doesn't listen")
	return ""
}

// reportCost reports what a run costs this process while runs counts them.
func reportCost(b *testing.B, runs *atomic.Int64) {
	b.Helper()
	time.Sleep(costSettle)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	count, cpu, switches := runs.Load(), cpuTime(b), contextSwitches(b)
	time.Sleep(costTime)
	spent, n := cpuTime(b)-cpu, float64(runs.Load()-count)
	switches = contextSwitches(b) - switches
	runtime.ReadMemStats(&after)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(spent.Microseconds())/n, "cpu-µs/run")
	b.ReportMetric(float64(switches)/n, "switches/run")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "B/run")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "allocs/run")
	b.ReportMetric(float64(after.NumGC-before.NumGC)/costTime.Seconds(), "gc/s")
	b.ReportMetric(n/costTime.Seconds(), "runs/s")
}

func usage(b *testing.B) syscall.Rusage {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	u := usage(b)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func contextSwitches(b *testing.B) int64 {
	b.Helper()
	u := usage(b)
	return u.Nvcsw + u.Nivcsw
}

// BenchmarkBareExec is the baseline: the same calls by a client that does nothing else.
func BenchmarkBareExec(b *testing.B) {
	conn, err := grpc.NewClient("unix://"+startRuntime(b, quick), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	var runs atomic.Int64
	for i := range costPods {
		go func() {
			time.Sleep(time.Duration(i) * time.Second / costPods)
			for range time.Tick(time.Second) {
				_, err := client.ExecSync(b.Context(), &runtimeapi.ExecSyncRequest{
					ContainerId: containerID(i),
					Cmd:         []string{"true"}, Timeout: 1,
				})
				if err != nil {
					return
				}
				runs.Add(1)
			}
		}()
	}
	reportCost(b, &runs)
}

// BenchmarkExecProbe is the daemon with a bus in memory, which costs nothing while no verdict changes.
func BenchmarkExecProbe(b *testing.B) {
	b.Run("in time", func(b *testing.B) { costOfProbes(b, quick) })
	b.Run("late", func(b *testing.B) { costOfProbes(b, slow) })
}

func costOfProbes(b *testing.B, takes time.Duration) {
	client, err := cri.Dial("unix://"+startRuntime(b, takes), cri.Options{
		Timeout: time.Minute, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	wires := bustest.New()
	conn, podsync, pleg := wires.Conn("probe"), wires.Conn("podsync"), wires.Conn("pleg")
	defer conn.Close()
	defer podsync.Close()
	defer pleg.Close()
	ctx, cancel := context.WithCancel(b.Context())
	memory.ForgoProfile()
	defer memory.Save(ctx, slog.New(slog.DiscardHandler), 1)()
	defer cancel()
	env := daemon.Env{
		Bus: conn, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), Pages: http.NewServeMux(),
		Health: mute{}, Events: mute{},
	}
	var runs atomic.Int64
	end := make(chan error, 1)
	go func() { end <- New(check.New(counting{client, &runs}), env).Run(ctx) }()
	announce(b, podsync, pleg)
	reportCost(b, &runs)
	cancel()
	if err := <-end; err != nil {
		b.Fatal(err)
	}
}

// announce has the pods run, each with an exec probe of a second.
func announce(b *testing.B, podsync, pleg *bus.Conn) {
	b.Helper()
	pods, seen := topic.PodUpdate.Writer(podsync), topic.PLEGEvent.Writer(pleg)
	for i := range costPods {
		uid := fmt.Sprintf("uid-%d", i)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "default", UID: types.UID(uid)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", ReadinessProbe: &corev1.Probe{
					ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
					PeriodSeconds: 1, TimeoutSeconds: 1,
				},
			}}},
		}
		if err := pods.Set(uid, topic.Pod{Pod: pod, Lifecycle: topic.Syncing}); err != nil {
			b.Fatal(err)
		}
		observation := topic.PodObservation{
			Ref: topic.Ref{UID: uid, Name: uid, Namespace: "default"},
			Containers: []topic.Container{{
				Name: "main", ID: containerID(i), State: topic.ContainerRunning,
				StartedAt: time.Now(),
			}},
		}
		if err := seen.Set(uid, observation); err != nil {
			b.Fatal(err)
		}
	}
}

// containerID looks like the runtime's.
func containerID(i int) string { return fmt.Sprintf("%064x", i) }

// counting counts the commands that have ended.
type counting struct {
	check.Execer
	runs *atomic.Int64
}

func (c counting) ExecSync(ctx context.Context, id string, command []string,
	timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	defer c.runs.Add(1)
	return c.Execer.ExecSync(ctx, id, command, timeout)
}

// mute takes health and Events.
type mute struct{}

func (mute) Set(topic.HealthState, string) {}

func (mute) Record(topic.Event) {}
