package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/deploy"
	"kubelot.dev/test/e2e/kit"
)

// reload has the crew read its configuration again, and returns what the command writes and its exit code.
func reload(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	all := append([]string{"config", "reload", "--run-dir=" + bed.Node.RunDir()}, args...)
	data, err := exec.CommandContext(t.Context(), bed.Program("kubelot"), all...).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(data), failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data), 0
}

// processes are the daemons' process IDs.
func processes(t *testing.T) string {
	t.Helper()
	names, err := deploy.Daemons()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, name := range names {
		pid, err := bed.Daemon(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprint(name, " ", pid))
	}
	return strings.Join(all, ", ")
}

// health is what a daemon has logged last of a change of its health.
func health(t *testing.T, daemon string) string {
	t.Helper()
	log, err := os.ReadFile(bed.Node.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	last := ""
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, `msg="health changed"`) && strings.Contains(line, " daemon="+daemon+" ") {
			last = line
		}
	}
	return last
}

// The eviction threshold is changed on a crew that runs: gc acts by it, no daemon is restarted, and what needs a
// restart is named. A wrong configuration changes nothing, and the daemons' health says so.
//
// The test isn't parallel: while it runs, the bed has no other pods that could be evicted.
func TestReload(t *testing.T) {
	if os.Getenv("KUBELOT_NODE") != "" {
		t.Skip("the configuration of that node isn't ours")
	}
	ns := bed.Namespace(t)
	ns.Apply(pod("victim", `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]`+"\n"))
	ns.Running("victim")
	before := processes(t)
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", bed.Node.PID())); filepath.Base(program) != "kubelot-up" {
		t.Errorf("the crew is run by %s (%v), want the small program", program, err)
	}
	file := bed.Node.ConfigFile()
	original, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { bed.Reconfigure(t, string(original)) })
	if out, code := reload(t); code != 0 || !strings.HasPrefix(out, "same ") {
		t.Fatalf("nothing has changed, and a reload says (exit code %d):\n%s", code, out)
	}

	t.Run("wrong", func(t *testing.T) { wrongConfiguration(t, write, string(original)) })

	// More memory than any machine has: each pod is in the way.
	changed := strings.Replace(string(original), "memory.available: 100Mi", "memory.available: 100000Gi", 1)
	changed += "evictionPressureTransitionPeriod: 1s\nmaxPods: 240\nlogging: {verbosity: 5}\n"
	write(strings.Replace(changed, "maxPods: 250\n", "", 1))
	out, code := reload(t)
	for _, want := range []string{
		"taken   evictionHard: by gc\n", "taken   evictionPressureTransitionPeriod: by gc\n",
		"restart maxPods: taken by lease, podsync, status at the next start only\n", "restart evictionHard: taken by lease",
		"taken   logging.verbosity: by api, bus, gc, lease, pleg, podsync, probe, ", "-> systemctl restart kubelot-",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("a reload doesn't say %q:\n%s", want, out)
		}
	}
	if code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	p := ns.Phase("victim", corev1.PodFailed)
	if p.Status.Reason != "Evicted" || !strings.Contains(p.Status.Message, "Threshold quantity: 100000Gi") {
		t.Errorf("reason %q, message %q", p.Status.Reason, p.Status.Message)
	}

	// The condition is not to last for its usual five minutes.
	bed.Reconfigure(t, string(original)+"evictionPressureTransitionPeriod: 1s\n")
	kit.Eventually(t, "the node without pressure", func() error {
		for _, c := range bed.KubeNode(t).Status.Conditions {
			if c.Type == corev1.NodeMemoryPressure && c.Status != corev1.ConditionFalse {
				return fmt.Errorf("%s: %s", c.Type, c.Message)
			}
		}
		return nil
	})
	write(string(original))
	if out, code := reload(t); code != 0 || out != "taken   evictionPressureTransitionPeriod: by gc\n" {
		t.Errorf("back to the beginning (exit code %d):\n%s", code, out)
	}
	ns.Apply(pod("after", `  containers: [{name: app, image: "busybox:1.36", command: $FOREVER}]`+"\n"))
	ns.Running("after")
	if after := processes(t); after != before {
		t.Errorf("daemons were restarted:\n%s\nbefore:\n%s", after, before)
	}
}

// wrongConfiguration writes one that no daemon takes, and one that they take again.
func wrongConfiguration(t *testing.T, write func(string), original string) {
	const lead = "the changed configuration is not taken: "
	bed.Reconfigure(t, strings.Replace(original, "maxPods: 250", "maxPods: -1", 1))
	kit.Eventually(t, "a health that names the configuration", func() error {
		for _, name := range []string{"gc", "pleg", "bus"} {
			if text := health(t, name); !strings.Contains(text, lead) {
				return fmt.Errorf("health of %s: %q", name, text)
			}
		}
		return nil
	})
	out, code := reload(t, "-o", "json")
	var report struct {
		Daemons []struct {
			Daemon string `json:"daemon"`
			Error  string `json:"error"`
		} `json:"daemons"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 || len(report.Daemons) < 10 {
		t.Fatalf("exit code %d, %v:\n%s", code, err, out)
	}
	for _, d := range report.Daemons {
		if !strings.Contains(d.Error, "maxPods") {
			t.Errorf("%s says %q", d.Daemon, d.Error)
		}
	}
	write(original)
	if out, code := reload(t); code != 0 {
		t.Errorf("the configuration is right again, exit code %d:\n%s", code, out)
	}
	kit.Eventually(t, "a health without a word of it", func() error {
		if text := health(t, "gc"); strings.Contains(text, lead) {
			return fmt.Errorf("health of gc: %q", text)
		}
		return nil
	})
}
