// Package sleep tests the sleep of the resource daemon on a bed where nothing needs it.
package sleep

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/bench/measure"
	"kubelot.dev/test/e2e/kit"
)

var bed *kit.Bed

func TestMain(m *testing.M) { os.Exit(kit.Main(m, &bed, kit.Options{})) }

// runs is the program that the process of the resource daemon is now.
func runs(t *testing.T) (pid int, program string, err error) {
	t.Helper()
	if pid, err = bed.Daemon("resource"); err != nil {
		return 0, "", err
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return pid, filepath.Base(path), err
}

const waits = "kubelot-doze"

// asleep waits until the daemon sleeps, and returns its process.
func asleep(t *testing.T) (pid int) {
	t.Helper()
	kit.Eventually(t, "the sleep of the resource daemon", func() (err error) {
		var program string
		if pid, program, err = runs(t); err == nil && program != waits {
			err = errors.New("it runs " + program)
		}
		return err
	})
	return pid
}

// woken checks that the same process is the daemon again.
func woken(t *testing.T, before int) {
	t.Helper()
	kit.Eventually(t, "the awakening of the resource daemon", func() error {
		pid, program, err := runs(t)
		if err == nil && program == waits {
			err = errors.New("it still sleeps")
		}
		if err == nil && pid != before {
			t.Fatalf("process %d has become %d", before, pid)
		}
		return err
	})
}

// The resource daemon sleeps while nothing needs it, and whatever needs it finds it awake.
func TestSleep(t *testing.T) {
	bed.NotCompact(t, "a daemon of a group doesn't sleep")
	pid := asleep(t)
	held, err := measure.Processes(pid)
	if err != nil || len(held) != 1 {
		t.Fatalf("processes %v: %v", held, err)
	}
	t.Logf("asleep it holds %d KiB", held[0].PSS>>10)
	if limit := int64(4 << 20); held[0].PSS > limit {
		t.Errorf("asleep it holds %d KiB", held[0].PSS>>10)
	}
	page := string(bed.Page(t, "resource", "/metrics"))
	if !strings.Contains(page, `kubelot_daemon_health{daemon="resource",state="healthy"} 1`) {
		t.Errorf("its metrics are:\n%s", page)
	}
	kit.Eventually(t, "the sleep in kubelot doctor", func() error {
		doctor, _ := kit.Output(exec.CommandContext(t.Context(), bed.Program("kubelot"), "doctor",
			"--run-dir="+bed.Bed.Path("run")))
		if !strings.Contains(doctor, "; asleep: nothing on this node needs") {
			return fmt.Errorf("it says:\n%s", doctor)
		}
		return nil
	})

	// A pod waits for it.
	ns := bed.Namespace(t)
	ns.Apply(`apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: toy}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: toys.test}}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits}
spec:
  nodeName: ` + kit.NodeName + `
  resourceClaims: [{name: toy, resourceClaimName: toy}]
  containers: [{name: app, image: "busybox:1.36", command: [sleep, "1"], resources: {claims: [{name: toy}]}}]
`)
	woken(t, pid)
	ns.Says("waits", "toy")
	p := ns.Wait("waits", "its place in a list", func(*corev1.Pod) bool { return true })
	ns.Delete("waits", 0)
	ns.Gone(p)

	// A device plugin registers, once: its connection is the daemon's.
	asleep(t)
	plugin := bed.DevicePlugin(t, "toys.test/toy", "toy-0", "toy-1")
	plugin.Serve()
	kit.Eventually(t, "the Node's devices", func() error {
		status := bed.KubeNode(t).Status
		if has := status.Allocatable[corev1.ResourceName("toys.test/toy")]; has.String() != "2" {
			return fmt.Errorf("%s are allocatable", has.String())
		}
		return nil
	})
	woken(t, pid)
	if n := plugin.Registrations(); n != 1 {
		t.Errorf("the plugin has registered %d times", n)
	}
}
