package vm

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/test/e2e/kit"
)

// deaf are pods whose process ignores SIGTERM: each ends by SIGKILL when its grace period is over.
const deaf = `
apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 5
  containers: [{name: app, image: "busybox:1.36", command: [sh, -c, 'trap "" TERM; while :; do sleep 1; done']}]
`

// The machine is switched off while a pod runs that ignores SIGTERM. Nothing is configured, so the pod keeps its state
// for the next boot, and nobody waits for it longer than its grace period: systemd would for 90 s.
func TestPowerOff(t *testing.T) {
	notQuick(t)
	ns := bed.Namespace(t)
	ns.Apply(deaf)
	before := ns.Running("deaf")
	powerOff(t)
	if p := pod(t, ns, "deaf"); p.Status.Phase != corev1.PodRunning {
		t.Errorf("the pod is %s (%s), though it runs again after the boot", p.Status.Phase, p.Status.Reason)
	}
	boot(t)
	ns.Wait("deaf", "another container", func(p *corev1.Pod) bool {
		return kit.Ready(p) && p.Status.ContainerStatuses[0].ContainerID != before.Status.ContainerStatuses[0].ContainerID
	})
}

// With shutdownGracePeriod, logind waits for gc, and gc for the pods and their statuses: when the machine is off, the
// API server knows of all of them that they have ended.
func TestGracefulShutdown(t *testing.T) {
	notQuick(t)
	configure(t, "shutdownGracePeriod: 5m\nshutdownGracePeriodCriticalPods: 1m\n")
	eventually(t, "logind to wait for gc", func(ctx context.Context) error {
		out, err := node.Machine.Run(ctx, "systemd-inhibit --list --no-legend; busctl get-property org.freedesktop.login1 "+
			"/org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec; "+
			"cat /etc/systemd/logind.conf.d/99-kubelet.conf")
		// The five minutes, and five seconds for the statuses.
		if err == nil && (!strings.Contains(out, "kubelet") || !strings.Contains(out, "t 305000000\n")) {
			err = fmt.Errorf("logind says:\n%s", out)
		}
		return err
	})
	ns := bed.Namespace(t)
	ns.Apply(deaf)
	ns.Running("deaf")
	powerOff(t)
	ended(t, pod(t, ns, "deaf"))
	n, err := node.KubeNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && (c.Status != corev1.ConditionFalse || c.Message != "node is shutting down") {
			t.Errorf("the node that is off is Ready=%s: %s", c.Status, c.Message)
		}
	}
	boot(t)
}

// Without logind nothing delays the shutdown but kubelot-shutdown.service, which systemd stops before the daemons and
// before the network.
func TestShutdownWithoutLogind(t *testing.T) {
	notQuick(t)
	in(t, "systemctl mask -q --runtime --now systemd-logind") // until the next boot
	undo(t, "systemctl unmask -q --runtime systemd-logind")
	configure(t, "shutdownGracePeriod: 5m\nshutdownGracePeriodCriticalPods: 1m\n")
	ns := bed.Namespace(t)
	ns.Apply(deaf)
	ns.Running("deaf")
	powerOff(t)
	ended(t, pod(t, ns, "deaf"))
	boot(t)
}

// ended checks what the API server knows of the deaf pod when the machine is off.
func ended(t *testing.T, p *corev1.Pod) {
	t.Helper()
	if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Terminated" ||
		p.Status.Message != "Pod was terminated in response to imminent node shutdown." ||
		kit.Condition(p, corev1.DisruptionTarget) != corev1.ConditionTrue {
		t.Errorf("status at the API server: %+v", p.Status)
	} else if end := p.Status.ContainerStatuses[0].State.Terminated; end == nil || end.ExitCode != 137 {
		t.Errorf("the container ended with %+v", end)
	}
}

// What package logind of gc relies on holds for the real logind.
func TestLogind(t *testing.T) {
	notQuick(t)
	program := os.Getenv("VM_LOGIND")
	if program == "" {
		t.Fatal("VM_LOGIND must name the test binary of services/gc/internal/logind: make vm-test does it")
	}
	const there = "/var/tmp/logind.test"
	if err := node.Machine.Copy(t.Context(), program, there); err != nil {
		t.Fatal(err)
	}
	out := in(t, "KUBELOT_TEST_REAL_LOGIND=1 "+there+" -test.v -test.run TestContract")
	for _, name := range []string{"a_lock_is_a_pipe_that_is_held_while_it_is_open", "the_limit_follows_the_files"} {
		if !strings.Contains(out, "--- PASS: TestContract/"+name) {
			t.Errorf("%s:\n%s", name, out)
		}
	}
}

// powerOff has the machine switch itself off, and fails if something kept systemd waiting at the very end: what then is
// left gets SIGTERM, and 90 s later SIGKILL.
func powerOff(t *testing.T) {
	t.Helper()
	begin := time.Now()
	if err := node.Machine.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("switched off in %.0f s", time.Since(begin).Seconds())
	if console := node.Machine.Console(); strings.Contains(console, "Waiting for process:") {
		t.Errorf("systemd waited for processes that ignore SIGTERM:\n%s", console)
	}
}

// boot starts the machine that was switched off.
func boot(t *testing.T) {
	t.Helper()
	if err := node.Machine.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := node.AwaitBoot(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// pod is the pod as the API server has it.
func pod(t *testing.T, ns *kit.Namespace, name string) *corev1.Pod {
	t.Helper()
	p, err := bed.Client.CoreV1().Pods(ns.Name).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}
