package kit

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubelot.dev/test/testbed/proc"
)

// Kubectl runs kubectl as the administrator and returns its output.
func (b *Bed) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := b.kubectl(t.Context(), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (b *Bed) kubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.Tools.Path("kubectl"),
		append([]string{"--kubeconfig=" + b.ControlPlane.AdminKubeconfig()}, args...)...)
	return Output(cmd)
}

// Output runs a command and returns what it writes to its standard output, and if it fails what it writes to the other
// one too. A kubectl that succeeds writes warnings there when another test has an API server's group that isn't
// available.
func Output(cmd *exec.Cmd) (string, error) {
	var out, warnings bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &warnings
	err := cmd.Run()
	if err != nil {
		_, _ = warnings.WriteTo(&out)
	}
	return out.String(), err
}

// Kubectl is Bed.Kubectl in the namespace.
func (n *Namespace) Kubectl(args ...string) string {
	n.t.Helper()
	return n.bed.Kubectl(n.t, append([]string{"--namespace=" + n.Name}, args...)...)
}

// TryKubectl is Kubectl for a command that may fail.
func (n *Namespace) TryKubectl(args ...string) (string, error) {
	return n.bed.kubectl(n.t.Context(), append([]string{"--namespace=" + n.Name}, args...)...)
}

// Program is the path of one of kubelot's executables.
func (b *Bed) Program(name string) string {
	if dir := os.Getenv("KUBELOT_BIN"); dir != "" {
		return dir + "/" + name
	}
	return b.Tools.Path(name)
}

// diagnose prints what a person would ask for first.
func (n *Namespace) diagnose() {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	described, err := n.bed.kubectl(ctx, "--namespace="+n.Name, "describe", "pods")
	n.t.Logf("kubectl describe pods: %v\n%s", err, last(described, 250))
	if n.bed.Node == nil {
		return
	}
	n.t.Logf("kubelot tap:\n%s", last(n.bed.tap(n.Name), 120))
	var lines []string
	for line := range strings.Lines(proc.Tail(n.bed.Node.LogPath(), 1<<20)) {
		if strings.Contains(line, n.Name) {
			lines = append(lines, line)
		}
	}
	n.t.Logf("kubelot's log of this namespace:\n%s", last(strings.Join(lines, ""), 30))
	n.t.Logf("kubelot's log:\n%s", last(proc.Tail(n.bed.Node.LogPath(), 6000), 15))
}

// tap is the history of the namespace's pods. The command follows the bus, so it is told to end.
func (b *Bed) tap(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, b.Program("kubelot"), "tap", "--run-dir="+b.Bed.Path("run"),
		"--since=10m", "--no-color")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	_ = cmd.Run()
	var lines []string
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, namespace+"/") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// last is the last n lines of a text.
func last(text string, n int) string {
	lines := strings.Split(text, "\n")
	if len(lines) > n {
		lines = append([]string{"..."}, lines[len(lines)-n:]...)
	}
	return strings.Join(lines, "\n")
}
