package ui

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/nats"
	"kubelot.dev/bus/topic"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/proc"
)

// players are the daemons that the test plays.
var players = []string{"podsync", "pleg", "volume", "resource", "probe", "status", "lease", "gc", "stats", "api"}

// played is a real bus on which the test says what daemons would.
type played struct {
	t      *testing.T
	runDir string
	bus    *proc.Process
	conns  map[string]*bus.Conn
}

// play starts a bus without daemons.
func play(t *testing.T) *played {
	t.Helper()
	p := &played{t: t, runDir: t.TempDir(), conns: map[string]*bus.Conn{}}
	p.startBus()
	return p
}

func (p *played) startBus() {
	p.t.Helper()
	var err error
	p.bus, err = proc.Start(proc.Spec{
		Name: "kubelot-bus", Path: bed.Program("kubelot-bus"), Dir: p.t.TempDir(),
		Args: []string{"--run-dir", p.runDir},
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { p.bus.Stop(kit.Patience) })
	p.connect("cli")
}

// connect connects as a member of the crew, and waits for the bus.
func (p *played) connect(member string) *bus.Conn {
	p.t.Helper()
	if conn := p.conns[member]; conn != nil {
		return conn
	}
	var conn *bus.Conn
	kit.Eventually(p.t, "the bus", func() error {
		log := slog.New(slog.DiscardHandler)
		transport, err := nats.Dial(p.t.Context(), nats.Options{
			Socket: filepath.Join(p.runDir, "bus.sock"), KeyFile: filepath.Join(p.runDir, "keys", member+".nk"),
			Daemon: member, Log: log,
		})
		if err != nil {
			return err
		}
		limited, cancel := context.WithTimeout(p.t.Context(), kit.Patience)
		defer cancel()
		if _, ok := <-transport.Connects(limited); !ok {
			transport.Close()
			return context.Cause(limited)
		}
		conn = bus.NewConn(transport, member, log)
		return nil
	})
	p.t.Cleanup(conn.Close)
	p.conns[member] = conn
	return conn
}

// state says a state as its writer.
func state[T any](p *played, member string, of bus.State[T], key string, value T) {
	p.t.Helper()
	p.must(of.Writer(p.connect(member)).Set(key, value))
}

func (p *played) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// crew says that all daemons are well and that the node is Ready.
func (p *played) crew() {
	p.t.Helper()
	now := time.Now()
	for i, name := range players {
		state(p, name, topic.Health, name, topic.DaemonHealth{
			State: topic.Healthy, Since: now, Beat: now, Started: now, Version: "v1.0.0", PID: 4100 + i,
		})
	}
	state(p, "lease", topic.NodeObject, "", corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		}}},
	})
}

// pods says that so many pods run, all but the last ones, which wait: for an image, and for a Secret.
func (p *played) pods(count int) {
	p.t.Helper()
	now := time.Now()
	updates, statuses := topic.PodUpdate.Writer(p.connect("podsync")), topic.StatusPatch.Writer(p.connect("podsync"))
	merged := topic.MergedStatus.Writer(p.connect("status"))
	uids := make([]string, 0, count)
	for i := range count {
		uid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		uids = append(uids, uid)
		name := fmt.Sprintf("%s-%d", []string{"web", "cart", "search", "billing", "worker"}[i%5], i/5)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "app", Image: "registry.example/" + name + ":1",
			}}},
		}
		status := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Ready: true, ContainerID: "containerd://" + uid,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}}
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if waits := map[int][2]string{
			count - 1: {"ImagePullBackOff", "Back-off pulling image"},
			count - 2: {"CreateContainerConfigError", `secret "db" not found`},
		}[i]; waits[0] != "" && count > 2 {
			status.Phase = corev1.PodPending
			status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: waits[0], Message: waits[1]},
			}}
			status.Conditions[0].Status = corev1.ConditionFalse
		}
		ref := topic.RefOf(pod)
		p.must(updates.Set(uid, topic.Pod{
			Pod: pod, Source: topic.SourceAPI, Lifecycle: topic.Syncing,
			FirstSeen: now.Add(-time.Duration(i) * 40 * time.Millisecond),
		}))
		p.must(statuses.Set(uid, topic.PodStatus{Ref: ref, Source: topic.SourceAPI, Status: status}))
		p.must(merged.Set(uid, topic.Merged{Ref: ref, Status: status}))
	}
	state(p, "podsync", topic.PodSources, "", topic.Sources{Ready: true, Pods: uids})
}

// chatter has podsync and pleg say something about a pod again and again, until the returned function is called.
func (p *played) chatter() (quiet func()) {
	steps := topic.PodStep.Publisher(p.connect("podsync"))
	seen := topic.PLEGEvent.Writer(p.connect("pleg"))
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		ref := topic.Ref{Namespace: "shop", Name: "web-0", UID: "00000000-0000-4000-8000-000000000000"}
		for {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				// The queue of a publisher is bounded, and a writer keeps the last value: neither can fail here.
				_ = steps.Publish(ref.UID, topic.Step{Ref: ref, Name: "read pod", Phase: topic.StepEnd, At: at})
				_ = seen.Set(ref.UID, topic.PodObservation{Ref: ref, At: at})
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
