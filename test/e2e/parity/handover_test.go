package parity

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// stays is a pod whose Ready condition one failed probe would turn.
const stays = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes: [{name: scratch, emptyDir: {}}]
  containers:
  - name: app
    image: busybox:1.36
    ` + forever + `
    volumeMounts: [{name: scratch, mountPath: /scratch, subPath: x}]
    readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
    livenessProbe: {exec: {command: ["true"]}, timeoutSeconds: 60, periodSeconds: 1, failureThreshold: 1}
`

// agentRun is an agent that the test has started itself.
type agentRun struct {
	cmd *exec.Cmd
	mu  sync.Mutex
	out bytes.Buffer
}

func (a *agentRun) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.Write(p)
}

func (a *agentRun) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.out.String()
}

// says waits for the text.
func (a *agentRun) says(t *testing.T, text string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("the text %q", text), func() error {
		if said := a.String(); !strings.Contains(said, text) {
			return fmt.Errorf("it said:\n%s", said)
		}
		return nil
	})
}

// launch starts a program that runs until the test ends at the latest.
func launch(t *testing.T, program string, args ...string) *agentRun {
	t.Helper()
	a := &agentRun{cmd: exec.Command(program, args...)}
	a.cmd.Stdout, a.cmd.Stderr = a, a
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = a.cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		if t.Failed() {
			t.Logf("%s %s:\n%s", program, strings.Join(args, " "), a)
		}
	})
	return a
}

// checkAsJSON runs kubelot takeover --check -o json, and checks its exit code, the kubelet that it has found, and the
// finding that is against the takeover; none for an empty text.
func checkAsJSON(t *testing.T, bed *kit.Bed, code int, against string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bed.Program("kubelot"), args...)
	out, err := cmd.Output()
	var report struct {
		OK      bool `json:"ok"`
		Kubelet struct {
			PID        int      `json:"pid"`
			Executable string   `json:"executable"`
			Args       []string `json:"args"`
		} `json:"kubelet"`
		Findings []struct {
			Stops bool   `json:"stops"`
			Text  string `json:"text"`
		} `json:"findings"`
	}
	if jsonErr := json.Unmarshal(out, &report); jsonErr != nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("exit code %d, want %d: %v, %v\n%s", cmd.ProcessState.ExitCode(), code, err, jsonErr, out)
	}
	k := report.Kubelet
	executable, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", bed.Node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	if report.OK != (code == 0) || k.PID != bed.Node.PID() || k.Executable != executable ||
		!slices.Contains(k.Args, "--root-dir="+bed.Node.RootDir) {
		t.Errorf("the report is %s", out)
	}
	found := ""
	for _, f := range report.Findings {
		if f.Stops {
			found += f.Text
		}
	}
	if !strings.Contains(found, against) || (found == "") != (against == "") {
		t.Errorf("%q is against the takeover, want %q", found, against)
	}
}

// TestTakeoverAndHandback has kubelot take a node over from the running kubelet, and give it back. A crew that doesn't
// come up gives it back by itself, and a volume that kubelot can't look after is a reason not to begin.
func TestTakeoverAndHandback(t *testing.T) {
	bed := kit.StartWithoutNode(t)
	if err := bed.StartNode(t.Context(), node.Kubelet); err != nil {
		t.Fatal(err)
	}
	ns := bed.Namespace(t)
	ns.Apply(fmt.Sprintf(stays, "stays"))
	was := ns.Running("stays")
	grown(was)
	kubelet, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", bed.Node.PID()))
	if err != nil {
		t.Fatal(err)
	}
	command := strings.Split(strings.TrimSuffix(string(kubelet), "\x00"), "\x00")
	args := []string{"takeover", "--root-dir=" + bed.Node.RootDir, "--run-dir=" + bed.Node.RunDir()}
	kubelot := bed.Program("kubelot")
	held := func(after string, pods ...*corev1.Pod) {
		t.Helper()
		for _, p := range pods {
			is := ns.Running(p.Name)
			if a, b := kit.Status(p, "app"), kit.Status(is, "app"); a.ContainerID != b.ContainerID || b.RestartCount != 0 {
				t.Errorf("after %s, %s: was %+v and is %+v", after, p.Name, a, b)
			}
			turned := func(p *corev1.Pod) string {
				i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
				return p.Status.Conditions[i].LastTransitionTime.String()
			}
			if turned(p) != turned(is) {
				t.Errorf("after %s, %s was Ready since %s and is since %s", after, p.Name, turned(p), turned(is))
			}
		}
	}

	foreign := filepath.Join(bed.Node.RootDir, "pods", string(was.UID), "volumes", "kubernetes.io~flocker", "pvc")
	if err := os.MkdirAll(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithTimeout(t.Context(), kit.Patience)
	out, err := exec.CommandContext(limited, kubelot, append(args, "--foreground")...).CombinedOutput()
	cancel()
	if err == nil || !strings.Contains(string(out), "uses a volume of kubernetes.io/flocker") {
		t.Errorf("a volume of another kind: %v\n%s", err, out)
	}
	checkAsJSON(t, bed, 1, "uses a volume of kubernetes.io/flocker", append(args, "--check", "-o=json")...)
	if err := os.RemoveAll(filepath.Dir(foreign)); err != nil {
		t.Fatal(err)
	}
	checkAsJSON(t, bed, 0, "", append(args, "--check", "-o=json")...)
	out, err = exec.CommandContext(t.Context(), kubelot, append(args, "--check")...).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "kubelot can take this node over") {
		t.Errorf("the check: %v\n%s", err, out)
	}

	// A crew that can't start: the kubelet goes on, as a process of this command.
	failing := launch(t, kubelot, append(args, "--foreground", "--bin-dir="+t.TempDir())...)
	failing.says(t, "the kubelet goes on")
	answers(t, bed, ns, was, node.Kubelet)
	held("a crew that can't start", was)

	taker := launch(t, kubelot, append(args, "--foreground", "--bin-dir="+filepath.Dir(kubelot))...)
	taker.says(t, "kubelot has taken the node over")
	answers(t, bed, ns, was, node.Kubelot)
	ns.Apply(fmt.Sprintf(stays, "came"))
	came := ns.Running("came")
	held("the takeover", was)

	grown(came)
	giver := launch(t, kubelot, append([]string{
		"handback", "--run-dir=" + bed.Node.RunDir(), "--",
		bed.Tools.Path("kubelet"),
	}, command[1:]...)...)
	giver.says(t, "kubelot has stopped; the kubelet starts")
	answers(t, bed, ns, was, node.Kubelet)
	held("the way back", was, came)
	for _, p := range []*corev1.Pod{was, came} {
		ns.Delete(p.Name, 1)
		ns.Gone(p)
	}
}

// grown waits until a kubelet that starts doesn't take the pod's container for a new one, which isn't ready before its
// first probe: it does so with those younger than ten seconds.
func grown(p *corev1.Pod) {
	time.Sleep(time.Until(kit.Status(p, "app").State.Running.StartedAt.Add(12 * time.Second)))
}

// answers waits until the agent runs commands in pods and its node is Ready. With kubelot the node is so at once; a
// kubelet that starts writes NotReady until it has listed the containers ("PLEG is not healthy: pleg has yet to be
// successful").
func answers(t *testing.T, bed *kit.Bed, ns *kit.Namespace, p *corev1.Pod, agent node.Agent) {
	t.Helper()
	kit.Eventually(t, "the node API of "+string(agent), func() error {
		out, err := ns.TryKubectl("exec", p.Name, "--", "echo", "here")
		if err == nil && out != "here\n" {
			return fmt.Errorf("it said %q", out)
		}
		return err
	})
	if agent == node.Kubelet {
		kit.Eventually(t, "the node of a kubelet", func() error { return nodeIsReady(t, bed) })
		return
	}
	if err := nodeIsReady(t, bed); err != nil {
		t.Error(err)
	}
}

func nodeIsReady(t *testing.T, bed *kit.Bed) error {
	t.Helper()
	for _, c := range bed.KubeNode(t).Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			return fmt.Errorf("the node is not Ready: %s", c.Message)
		}
	}
	return nil
}
