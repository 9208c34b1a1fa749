package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
)

// unanswered is what a command says that has waited in vain for the bus or a daemon: another test may just have killed
// it, or the machine is busy.
var unanswered = regexp.MustCompile(`doesn't answer|(?i)deadline ?exceeded`)

// kubelot runs the command line on the bed, with what is on its standard input, and returns what it has printed and its
// exit code. It runs it again where nobody has answered.
func kubelot(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	for deadline := time.Now().Add(kit.Patience); ; time.Sleep(100 * time.Millisecond) {
		stdout, stderr, code = kubelotOnce(t, stdin, args...)
		if code != 1 || !unanswered.MatchString(stderr) || time.Now().After(deadline) {
			return stdout, stderr, code
		}
	}
}

func kubelotOnce(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs strings.Builder
	ctx := context.WithoutCancel(t.Context()) // a test's end cleans up with it, too
	cmd := exec.CommandContext(ctx, bed.Program("kubelot"), append(args, "--run-dir="+bed.Bed.Path("run"))...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), code
}

// A person without an API server runs pods from files, changes them, and removes them.
func TestApplyAndDelete(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	both := inNamespace(ns, pod("first", staticSpec)) + "---\n" + inNamespace(ns, pod("second", staticSpec))
	t.Cleanup(func() {
		left, _ := filepath.Glob(filepath.Join(bed.Node.ManifestDir, "kubelot."+ns.Name+".*"))
		for _, path := range left {
			_ = os.Remove(path)
		}
	})

	// What static pods can't have is refused before anything is written.
	secret := strings.Replace(both, "command:", "envFrom: [{secretRef: {name: s}}], command:", 1)
	if _, stderr, code := kubelot(t, secret, "apply", "-f", "-"); code != 1 ||
		!strings.Contains(stderr, "standard input (document 1): static pods may not reference secrets") ||
		!strings.Contains(stderr, "nothing was changed") {
		t.Errorf("a pod with a Secret: exit code %d\n%s", code, stderr)
	}
	if out, stderr, code := kubelot(t, both, "apply", "-f", "-", "--dry-run"); code != 0 ||
		strings.Count(out, "created (dry run)") != 2 {
		t.Errorf("dry run: exit code %d\n%s%s", code, out, stderr)
	}
	if left, _ := filepath.Glob(filepath.Join(bed.Node.ManifestDir, "kubelot."+ns.Name+".*")); len(left) > 0 {
		t.Errorf("written too early: %v", left)
	}

	out, stderr, code := kubelot(t, both, "apply", "-f", "-")
	name := ns.Name + "/first-" + kit.NodeName
	if code != 0 || !strings.Contains(out, "pod "+name+": created (") || !strings.Contains(out, "pod "+name+": is ready") {
		t.Fatalf("exit code %d\n%s%s", code, out, stderr)
	}
	first := ns.Running("first-" + kit.NodeName)
	container := kit.Status(first, "app").ContainerID

	// The same again changes nothing; a change replaces the one pod.
	if out, stderr, code = kubelot(t, both, "apply", "-f", "-"); code != 0 || strings.Count(out, ": unchanged (") != 2 {
		t.Errorf("applied again: exit code %d\n%s%s", code, out, stderr)
	}
	changed := strings.Replace(both, "name: app", "name: renamed", 1)
	out, stderr, code = kubelot(t, changed, "apply", "-f", "-")
	if code != 0 || strings.Count(out, ": unchanged (") != 1 || !strings.Contains(out, "pod "+name+": changed (") {
		t.Errorf("changed: exit code %d\n%s%s", code, out, stderr)
	}
	renewed := ns.Wait("first-"+kit.NodeName, "changed and Ready", func(p *corev1.Pod) bool {
		return kit.Ready(p) && kit.Status(p, "renamed") != nil
	})
	if kit.Status(renewed, "renamed").ContainerID == container {
		t.Errorf("the changed pod has the containers %+v", renewed.Status.ContainerStatuses)
	}

	// Somebody else's manifest is left alone.
	manifest(t, ns.Name+".yaml", inNamespace(ns, pod("foreign", staticSpec)))
	ns.Running("foreign-" + kit.NodeName)
	foreign := inNamespace(ns, pod("foreign", staticSpec))
	if _, stderr, code = kubelot(t, foreign, "apply", "-f", "-"); code != 1 || !strings.Contains(stderr, ns.Name+".yaml") {
		t.Errorf("a name that is taken: exit code %d\n%s", code, stderr)
	}
	if _, stderr, code = kubelot(t, "", "delete", ns.Name+"/foreign"); code != 1 ||
		!strings.Contains(stderr, "remove that file") {
		t.Errorf("somebody else's pod: exit code %d\n%s", code, stderr)
	}

	out, stderr, code = kubelot(t, "", "delete", ns.Name+"/first", "-o", "json")
	var results []struct {
		Action string `json:"action"`
		Done   bool   `json:"done"`
	}
	if err := json.Unmarshal([]byte(out), &results); err != nil || code != 0 || len(results) != 1 || !results[0].Done ||
		results[0].Action != "deleted" {
		t.Errorf("deleted: exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	ns.Gone(renewed)
	if out, stderr, code = kubelot(t, both, "delete", "-f", "-", "--ignore-not-found"); code != 0 ||
		!strings.Contains(out, "second-"+kit.NodeName+": is gone") {
		t.Errorf("deleted with a file: exit code %d\n%s%s", code, out, stderr)
	}
	if _, stderr, code = kubelot(t, "", "delete", ns.Name+"/second"); code != 1 ||
		!strings.Contains(stderr, "has no manifest") {
		t.Errorf("deleted again: exit code %d\n%s", code, stderr)
	}
}

// A pod that doesn't become ready ends the wait with its cause, and stays.
func TestApplySaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	ns := bed.Namespace(t)
	absent := bed.Registry.Addr + "/absent/app:1"
	text := inNamespace(ns, imagePod("broken", absent, "IfNotPresent"))
	t.Cleanup(func() { kubelot(t, text, "delete", "-f", "-", "--ignore-not-found", "--wait", "0") })
	if out, stderr, code := kubelot(t, text, "apply", "-f", "-", "--wait", "0"); code != 0 {
		t.Fatalf("without waiting: exit code %d\n%s%s", code, out, stderr)
	}
	ns.Says("broken-"+kit.NodeName, "absent/app:1") // its pull may take a while to fail
	out, stderr, code := kubelot(t, text, "apply", "-f", "-", "--wait", "15s")
	if code != 2 || !strings.Contains(out, "0 of 1 container ready") || !strings.Contains(stderr, "isn't ready: ") ||
		!strings.Contains(stderr, "absent/app:1") || !strings.Contains(stderr, "kubelot why "+ns.Name+"/broken-") {
		t.Errorf("exit code %d\n%s%s", code, out, stderr)
	}
	gone := ns.Wait("broken-"+kit.NodeName, "there", func(*corev1.Pod) bool { return true })
	if out, stderr, code = kubelot(t, "", "delete", ns.Name+"/broken"); code != 0 {
		t.Errorf("delete: exit code %d\n%s%s", code, out, stderr)
	}
	ns.Gone(gone)
}
