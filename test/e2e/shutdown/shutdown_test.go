package shutdown

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/gc/logindtest"
	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// config gives the pods without a class a time that no busy machine uses up.
const config = `shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 300}
- {priority: 1000, shutdownGracePeriodSeconds: 4}
- {priority: 2000000000, shutdownGracePeriodSeconds: 300}
`

const (
	message = "Pod was terminated in response to imminent node shutdown."
	// obeys is a shell command that ends at once when told to; deaf one that never does.
	obeys = `trap "exit 0" TERM; while :; do sleep 1000 & wait; done`
	deaf  = `trap "" TERM; while :; do sleep 1000 & wait; done`
)

// rig is a node with a logind, behind a proxy.
type rig struct {
	*kit.Bed
	t      *testing.T
	ns     *kit.Namespace
	proxy  *proxy
	logind *logindtest.Logind
	off    chan time.Duration
}

func start(t *testing.T) *rig {
	t.Helper()
	bus := logindtest.StartBus(t)
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.Address)
	r := &rig{Bed: kit.StartWithoutNode(t), t: t, logind: logindtest.StartLogind(t, bus, time.Hour, t.TempDir())}
	t.Cleanup(func() {
		if t.Failed() && r.Node != nil {
			if data, err := os.ReadFile(r.Node.LogPath()); err == nil {
				lines := strings.Split(string(data), "\n")
				t.Logf("the crew's log:\n%s", strings.Join(lines[max(0, len(lines)-80):], "\n"))
			}
		}
	})
	r.Config = config
	var kubeconfig string
	r.proxy, kubeconfig = startProxy(t, r.Bed)
	if err := r.StartNode(context.WithoutCancel(t.Context()), node.Kubelot, "--kubeconfig="+kubeconfig); err != nil {
		t.Fatal(err)
	}
	_, err := r.Client.SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "important"}, Value: 1000,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, "logind's lock", func() error { return r.locks(1) })
	r.ns = r.Namespace(t)
	return r
}

func (r *rig) locks(want int) error {
	if got := r.logind.Locks(); len(got) != want {
		return fmt.Errorf("locks %+v", got)
	}
	return nil
}

func (r *rig) apply(name, command, more string) {
	r.t.Helper()
	r.ns.Apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 600\n" +
		"  restartPolicy: Never\n" + more + "  containers:\n  - name: app\n    image: busybox:1.36\n    command: [sh, -c, '" +
		command + "']\n")
}

// powerOff begins a shutdown of the machine. r.off says when the machine is off.
func (r *rig) powerOff() {
	r.off = make(chan time.Duration, 1)
	go func() { r.off <- r.logind.PowerOff() }()
}

func (r *rig) isOff() bool {
	select {
	case d := <-r.off:
		r.off <- d
		return true
	default:
		return false
	}
}

// ready waits for the node's Ready.
func (r *rig) ready(want corev1.ConditionStatus, text string) {
	r.t.Helper()
	kit.Eventually(r.t, "Ready "+string(want), func() error {
		for _, c := range r.KubeNode(r.t).Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == want && strings.Contains(c.Message, text) {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", r.KubeNode(r.t).Status.Conditions)
	})
}

// terminated waits for the pod's end, and checks that it says why.
func (r *rig) terminated(name string) *corev1.Pod {
	r.t.Helper()
	p := r.ns.Phase(name, corev1.PodFailed)
	checkTerminated(r.t, p)
	return p
}

func checkTerminated(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" || p.Status.Message != message {
		t.Errorf("pod %s is %s, %q, %q", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
			c.Message == message {
			return
		}
	}
	t.Errorf("pod %s has the conditions %+v", p.Name, p.Status.Conditions)
}

// runs waits until the pod runs and heeds SIGTERM.
func (r *rig) runs(name string) *corev1.Pod {
	r.t.Helper()
	p := r.ns.Running(name)
	r.ns.HeedsTERM(p, "app")
	return p
}

func (r *rig) nodeEvent(text string) {
	r.t.Helper()
	kit.Eventually(r.t, "Event "+text, func() error {
		list, err := r.Client.CoreV1().Events("default").List(r.t.Context(), metav1.ListOptions{
			FieldSelector: "involvedObject.kind=Node,reason=Shutdown",
		})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if list.Items[i].Message == text && list.Items[i].Type == corev1.EventTypeNormal {
				return nil
			}
		}
		return fmt.Errorf("%d other Events", len(list.Items))
	})
}

func TestShutdown(t *testing.T) {
	r := start(t)
	t.Run("cancelled", func(*testing.T) { r.cancelled() })
	t.Run("by command", func(*testing.T) { r.byCommand() })
	t.Run("as JSON", func(*testing.T) { r.asJSON() })
	t.Run("to the end", func(*testing.T) { r.toTheEnd() })
}

// cancelled begins a shutdown and ends it in the middle: the groups that have not begun run on, pods are admitted
// again, and a static pod comes back.
func (r *rig) cancelled() {
	r.apply("victim", obeys, "")
	r.apply("obstinate", deaf, "")
	r.apply("important", obeys, "  priorityClassName: important\n")
	manifest := filepath.Join(r.Node.ManifestDir, "static.yaml")
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: static, namespace: " + r.ns.Name + "}\nspec:\n  containers:\n" +
		"  - {name: app, image: 'busybox:1.36', command: [sh, -c, '" + obeys + "']}\n"
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	static := "static-" + kit.NodeName
	for _, name := range []string{"victim", "obstinate", static} {
		r.runs(name)
	}
	important := r.runs("important")

	r.powerOff()
	r.ready(corev1.ConditionFalse, "node is shutting down")
	r.nodeEvent("Shutdown manager detected shutdown event")
	r.terminated("victim")
	r.terminated(static)
	r.apply("late", obeys, "  nodeName: "+kit.NodeName+"\n")
	late := r.ns.Phase("late", corev1.PodFailed)
	if late.Status.Reason != "NodeShutdown" ||
		late.Status.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
		r.t.Errorf("the pod that came late has %q, %q", late.Status.Reason, late.Status.Message)
	}
	r.ns.Says("victim", "this node has ended it: the node was being shut down")
	r.ns.Says("late", "this node has refused it: the node was being shut down")
	r.NodeSays(r.t, "this node shuts down and ends its pods")
	if r.isOff() {
		r.t.Fatal("the machine went off while a pod was ending")
	}

	r.logind.Cancel()
	r.ready(corev1.ConditionTrue, "")
	r.nodeEvent("Shutdown manager detected shutdown cancellation")
	r.apply("next", obeys, "")
	r.runs("next")
	r.runs(static)
	if now := r.ns.Running("important"); kit.Status(now, "app").ContainerID != kit.Status(important, "app").ContainerID {
		r.t.Error("a pod was ended whose group had not begun")
	}
	r.ns.Delete("obstinate", 0)
	if err := os.Remove(manifest); err != nil {
		r.t.Fatal(err)
	}
	kit.Eventually(r.t, "one lock", func() error { return r.locks(1) })
}

// byCommand ends the pods without logind's word, and waits.
func (r *rig) byCommand() {
	r.runs("next")
	out, err := r.command("start", "--grace-period=10m", "--critical-grace-period=5m")
	if err != nil || !strings.HasSuffix(out, "done\n") {
		r.t.Fatalf("%v: %s", err, out)
	}
	// The command waits until the API server has the statuses.
	for _, name := range []string{"next", "important"} {
		p, err := r.Client.CoreV1().Pods(r.ns.Name).Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		checkTerminated(r.t, p)
	}
	r.ready(corev1.ConditionFalse, "node is shutting down")
	if out, err := r.command("state"); err != nil || !strings.Contains(out, "the machine may shut down") {
		r.t.Errorf("%v: %s", err, out)
	}
	var cancelled topic.Shutdown
	out, err = r.command("cancel", "-o=json")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &cancelled)); err != nil || cancelled.Active {
		r.t.Fatalf("%v: %s", err, out)
	}
	r.ready(corev1.ConditionTrue, "")
	if out, err := r.command("cancel"); err == nil || !strings.Contains(out, "isn't shutting down") {
		r.t.Errorf("%v: %s", err, out)
	}
	kit.Eventually(r.t, "the lock", func() error { return r.locks(1) })
}

// toTheEnd lets the machine go off, with everything that can go wrong on the way: a preStop hook, a pod that ignores
// SIGTERM, gc and podsync killed in the middle, an API server that is slow.
func (r *rig) toTheEnd() {
	r.apply("finished", "exit 0", "")
	r.apply("hooked", "touch /tmp/up; "+obeys, `
  volumes: [{name: v, emptyDir: {medium: Memory}}]
`)
	r.apply("obstinate2", deaf, "  priorityClassName: important\n")
	// The last group takes as long as the test wants.
	r.apply("critical", `trap "touch /tmp/told" TERM; until [ -e /tmp/told ] && [ -e /tmp/go ]; do sleep 0.1; done`,
		"  priorityClassName: system-cluster-critical\n")
	r.ns.Apply(`apiVersion: v1
kind: Pod
metadata: {name: last-words}
spec:
  terminationGracePeriodSeconds: 600
  containers:
  - name: app
    image: busybox:1.36
    command: [sh, -c, 'while ! [ -e /tmp/said ]; do sleep 0.1; done; exit 7']
    lifecycle: {preStop: {exec: {command: [sh, -c, 'sleep 2; touch /tmp/said; sleep 600']}}}
`)
	r.ns.Phase("finished", corev1.PodSucceeded)
	r.ns.Running("last-words")
	r.runs("hooked")
	r.runs("obstinate2")
	critical := r.runs("critical")

	r.powerOff()
	kit.Eventually(r.t, "the shutdown", func() error {
		if s, err := r.tryState(); err != nil || !s.Active {
			return fmt.Errorf("state %+v, %w", s, err)
		}
		return nil
	})
	r.Signal(r.t, "podsync", syscall.SIGKILL)
	r.group(1)
	r.proxy.setSlow(true)
	r.Signal(r.t, "gc", syscall.SIGKILL)
	kit.Eventually(r.t, "SIGTERM for the critical pod", func() error {
		_, err := r.ns.Try(critical, "app", "test -e /tmp/told")
		return err
	})
	// The group before has had its time. Its last container may be killed a moment later on a busy machine.
	if s := r.state(); s.Group < 2 {
		r.t.Errorf("the critical pod is ended before its turn: %+v", s)
	}
	r.ns.Exec(critical, "app", "touch /tmp/go")
	r.group(3)
	time.Sleep(time.Second)
	if s := r.state(); !s.Done.IsZero() || r.isOff() || r.locks(1) != nil {
		r.t.Errorf("the machine went off before the API server had the statuses: %+v", s)
	}
	r.proxy.setSlow(false)
	select {
	case took := <-r.off:
		r.t.Logf("the machine went off after %s", took)
	case <-time.After(kit.Patience):
		r.t.Fatalf("the machine doesn't go off: %+v", r.state())
	}

	// This is what the API server has when the machine is off.
	list, err := r.Client.CoreV1().Pods(r.ns.Name).List(r.t.Context(), metav1.ListOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	ended, codes := map[string]time.Time{}, map[string]int32{}
	for i := range list.Items {
		p := &list.Items[i]
		switch p.Name {
		case "finished":
			if p.Status.Phase != corev1.PodSucceeded || p.Status.Reason != "" {
				r.t.Errorf("a pod that had succeeded is %s, %q", p.Status.Phase, p.Status.Reason)
			}
			continue
		case "late":
			continue
		}
		checkTerminated(r.t, p)
		status := kit.Status(p, "app")
		if status == nil || status.State.Terminated == nil {
			r.t.Errorf("pod %s: the API server doesn't know that its container has ended: %+v", p.Name, p.Status)
			continue
		}
		state := status.State.Terminated
		ended[p.Name], codes[p.Name] = state.FinishedAt.Time, state.ExitCode
	}
	for _, pair := range [][2]string{{"hooked", "obstinate2"}, {"last-words", "obstinate2"}} {
		if ended[pair[1]].Before(ended[pair[0]]) {
			r.t.Errorf("%s ended at %s, before %s at %s", pair[1], ended[pair[1]], pair[0], ended[pair[0]])
		}
	}
	if codes["last-words"] != 7 || codes["obstinate2"] != 137 || codes["critical"] != 0 || codes["hooked"] != 0 {
		r.t.Errorf("exit codes %v", codes)
	}
	r.ready(corev1.ConditionFalse, "node is shutting down")
	if s := r.state(); s.Message != "" || s.Trigger != topic.ByLogind {
		r.t.Errorf("state %+v", s)
	}
	data, err := os.ReadFile(filepath.Join(r.Node.RootDir, "graceful_node_shutdown_state"))
	if err != nil || !strings.Contains(string(data), `"endTime":"2`) {
		r.t.Errorf("%s, %v", data, err)
	}
}

// group waits until that group ends, or all have.
func (r *rig) group(want int) {
	r.t.Helper()
	kit.Eventually(r.t, fmt.Sprintf("group %d", want), func() error {
		if s, err := r.tryState(); err != nil || s.Group < want {
			return fmt.Errorf("state %+v, %w", s, err)
		}
		return nil
	})
}
