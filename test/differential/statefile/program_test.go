package statefile

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// TestMain keeps the kubelet's code quiet: it logs each step.
func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// kubelot runs a test of a package of the resource daemon, with a directory in an environment variable. It returns the
// output, and whether the test has passed.
func kubelot(t *testing.T, pkg, test, variable, dir string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^"+test+"$", "./internal/"+pkg)
	cmd.Dir = filepath.Join("..", "..", "..", "services", "resource")
	cmd.Env = append(os.Environ(), "GOWORK=off", variable+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "--- FAIL") {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return string(out), err == nil
}

// tail is the end of a long output.
func tail(text string) string { return text[max(0, len(text)-6000):] }
