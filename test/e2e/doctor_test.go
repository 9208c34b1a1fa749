package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kubelot.dev/test/e2e/kit"
)

// diagnosis is what kubelot doctor says.
type diagnosis struct {
	Code     int `json:"exitCode"`
	Findings []struct {
		Name    string `json:"name"`
		Kind    string `json:"kind"`
		Problem string `json:"problem"`
		Cause   string `json:"cause"`
		Advice  string `json:"advice"`
		OK      bool   `json:"ok"`
	} `json:"findings"`
}

// doctor runs the command with the configuration of the daemons, or with what the arguments say.
func doctor(t *testing.T, own *kit.Bed, args ...string) (d diagnosis, err error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), own.Program("kubelot"), append([]string{
		"doctor", "-o=json", "--run-dir=" + own.Node.RunDir(),
	}, args...)...).Output()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return d, err
	}
	if err := json.Unmarshal(out, &d); err != nil {
		return d, fmt.Errorf("%w: %s", err, out)
	}
	code := 0
	if ended != nil {
		code = ended.ExitCode()
	}
	if code != d.Code {
		return d, fmt.Errorf("the exit code is %d, and in the answer %d", code, d.Code)
	}
	return d, nil
}

// finds waits until the doctor ends with the code and says that of the check.
func finds(t *testing.T, own *kit.Bed, code int, check, cause string, args ...string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("exit code %d of the doctor", code), func() error {
		d, err := doctor(t, own, args...)
		if err != nil {
			return err
		}
		if d.Code != code {
			return fmt.Errorf("exit code %d: %+v", d.Code, d.Findings)
		}
		for _, f := range d.Findings {
			if f.Name == check && strings.Contains(f.Cause, cause) && f.OK == (code == 0) {
				return nil
			}
		}
		return fmt.Errorf("the cause of %s isn't %q: %+v", check, cause, d.Findings)
	})
}

// doctorFindsStopped takes away one after the other what a node needs. The exit code says what kind of thing it is.
func doctorFindsStopped(t *testing.T, own *kit.Bed) {
	own.NotCompact(t, "one process of a daemon is stopped")
	finds(t, own, 0, "pleg", "")
	finds(t, own, 3, "runtime", "the container runtime isn't there", "--hostname-override="+kit.NodeName,
		"--config="+own.Node.ConfigFile(), "--container-runtime-endpoint=unix:///no/such.sock")

	own.Signal(t, "bus", syscall.SIGSTOP)
	finds(t, own, 4, "bus", "it listens, but gives no answer")
	own.Signal(t, "bus", syscall.SIGCONT)
	finds(t, own, 0, "bus", "")

	// A daemon counts as away 95 s after its last word.
	own.Signal(t, "gc", syscall.SIGSTOP)
	finds(t, own, 5, "gc", "its loop doesn't come round")
	own.Signal(t, "gc", syscall.SIGCONT)
	finds(t, own, 0, "gc", "")

	ns := own.Namespace(t)
	ns.Apply(pod("victim", "  containers: [{name: app, image: \"busybox:1.36\", command: $FOREVER}]\n"))
	p := ns.Wait("victim", "ready", kit.Ready)
	own.ControlPlane.StopAPIServer()
	own.KillContainer(t, p, "app") // so that there is a status to write
	finds(t, own, 6, "status", "where the API server should be")
	if err := own.ControlPlane.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	finds(t, own, 0, "status", "")
}
