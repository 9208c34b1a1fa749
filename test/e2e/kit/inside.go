package kit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ShimIsLate is containerd's error where a shim doesn't report the state of its task in time. The limit is containerd's
// own: its option timeouts."io.containerd.timeout.task.state", two seconds by default and a minute in a test bed. No
// caller can extend it, neither kubelot nor the kubelet. An overloaded machine exceeds it.
const ShimIsLate = "failed to exec in container: failed to load task: context deadline exceeded"

// OnceShimAnswers runs a command, and again where it fails with ShimIsLate, at most five times. Any other error is
// returned at once. containerd asks the shim before it starts the command, so a try that fails like that has done
// nothing and has no output: a caller that keeps the output of every try finds what is there twice.
func OnceShimAnswers(command func() error) (again int, err error) {
	for {
		err = command()
		if err == nil || !strings.Contains(err.Error(), ShimIsLate) || again == 5 {
			return again, err
		}
		again++
	}
}

// Try runs a shell command in the container and returns its output, without the last newline, or its failure.
func (n *Namespace) Try(pod *corev1.Pod, container, command string) (string, error) {
	status := Status(pod, container)
	if status == nil {
		return "", fmt.Errorf("pod %s has no status of container %s", pod.Name, container)
	}
	_, id, _ := strings.Cut(status.ContainerID, "://")
	var answer *runtimeapi.ExecSyncResponse
	if _, err := OnceShimAnswers(func() (err error) {
		answer, err = n.bed.CRI.Runtime().ExecSync(n.t.Context(), &runtimeapi.ExecSyncRequest{
			ContainerId: id, Cmd: []string{"sh", "-c", command}, Timeout: 60,
		})
		return err
	}); err != nil {
		return "", err
	}
	if answer.ExitCode != 0 {
		return string(answer.Stdout), fmt.Errorf("%s: exit code %d: %s", command, answer.ExitCode, answer.Stderr)
	}
	return strings.TrimSuffix(string(answer.Stdout), "\n"), nil
}

// Exec is Try that must succeed.
func (n *Namespace) Exec(pod *corev1.Pod, container, command string) string {
	n.t.Helper()
	out, err := n.Try(pod, container, command)
	if err != nil {
		n.t.Fatalf("in %s/%s: %v", pod.Name, container, err)
	}
	return out
}

// Equal runs the command in the container and compares its output.
func (n *Namespace) Equal(pod *corev1.Pod, container, command, want string) {
	n.t.Helper()
	if got := n.Exec(pod, container, command); got != want {
		n.t.Errorf("in %s/%s, %s:\n got %q\nwant %q", pod.Name, container, command, got, want)
	}
}

// HeedsTERM waits until the container's first process catches or ignores SIGTERM. A container counts as running before
// its program has run a line, and SIGTERM in that moment ends it as nobody wrote it: the first process is runc still,
// which catches all signals.
func (n *Namespace) HeedsTERM(pod *corev1.Pod, containers ...string) {
	n.t.Helper()
	for _, container := range containers {
		Eventually(n.t, fmt.Sprintf("container %s of pod %s to heed SIGTERM", container, pod.Name), func() error {
			status, err := n.Try(pod, container, `sed -n 's/^\(Name\|Sig[CI][gt][tn]\):\s*//p' /proc/1/status`)
			if err != nil {
				return err
			}
			fields := strings.Fields(status)
			if len(fields) != 3 || strings.HasPrefix(fields[0], "runc:") {
				return fmt.Errorf("its program doesn't run yet: %q", status)
			}
			for _, mask := range fields[1:] {
				bits, err := strconv.ParseUint(mask, 16, 64)
				if err != nil {
					return err
				}
				if bits&(1<<(syscall.SIGTERM-1)) != 0 {
					return nil
				}
			}
			return fmt.Errorf("it does neither yet: %q", status)
		})
	}
}

// Logged waits until the text is in what the container's first run has written: the runtime may write the end of the
// log after the container has ended.
func (n *Namespace) Logged(pod *corev1.Pod, container, text string) {
	n.t.Helper()
	Eventually(n.t, fmt.Sprintf("%q in the log of %s/%s", text, pod.Name, container), func() error {
		if log := n.Log(pod, container, 0); !strings.Contains(log, text) {
			return fmt.Errorf("it has %q", log)
		}
		return nil
	})
}

// Log is what the container's run of that number has written to its standard output and error so far.
func (n *Namespace) Log(pod *corev1.Pod, container string, run int) string {
	n.t.Helper()
	path := filepath.Join(n.bed.Node.PodLogs, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID), container,
		fmt.Sprintf("%d.log", run))
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return ""
	}
	if err != nil {
		n.t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		// <time> <stream> <tag> <text>
		if fields := strings.SplitN(line, " ", 4); len(fields) == 4 {
			out.WriteString(fields[3])
		}
	}
	return out.String()
}
