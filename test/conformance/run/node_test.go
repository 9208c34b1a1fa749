package run

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/conformance"
	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/cri"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

// The test binary parses its flags itself: ginkgo's have a prefix there, and one dash would be something else.
func TestNodeArgs(t *testing.T) {
	s := &onNode{cluster: &cluster.Cluster{
		Bed: &bed.Bed{Dir: "/b"}, Tools: &tools.Box{Bin: "/bin"}, CRI: &cri.Runtime{Socket: "/c"},
	}}
	scope := conformance.Scope{Suite: conformance.Node(), Focus: "one"}
	args := s.args(Options{Scope: scope, Timeout: time.Minute}, "/out")
	for _, want := range []string{
		"--ginkgo.focus=one", "--ginkgo.timeout=1m0s", "--node-name=testbed", "--report-dir=/out",
		"--container-runtime-endpoint=unix:///c", "--kubelet-config-file=/b/kubelet.yaml", "--k8s-bin-dir=/b/shims",
	} {
		if !slices.Contains(args, want) {
			t.Errorf("no %s in %q", want, args)
		}
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "--") {
			t.Errorf("%s doesn't begin with two dashes", arg)
		}
	}
}

// A crew's daemons may end after their supervisor: who stops it waits for them.
func TestAgentStops(t *testing.T) {
	process, err := proc.Start(proc.Spec{
		Name: "agent", Path: "/bin/sh", Dir: t.TempDir(),
		Args: []string{"-c", "trap 'exit 0' TERM; " +
			"(trap '' TERM; while kill -0 $$ 2>/dev/null; do sleep 0.05; done; sleep 0.3) & wait"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{process: process}
	if !a.Running() {
		t.Error("it doesn't run after its start")
	}
	var children []int
	for deadline := time.Now().Add(time.Minute); len(children) == 0; {
		if children, err = bed.Children(process.PID()); err != nil || time.Now().After(deadline) {
			t.Fatalf("it has no child: %v", err)
		}
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if left := bed.Running(children); a.Running() || len(left) > 0 {
		t.Errorf("after its end: running %v, children %v", a.Running(), left)
	}
	if err := a.Stop(); err != nil {
		t.Errorf("stop what has ended: %v", err)
	}
}

func TestOwnMounts(t *testing.T) {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Skip("no mount namespaces here")
	}
	for machines, good := range map[string]bool{"": false, mine: false, "mnt:[1]": true} {
		t.Setenv(machinesMounts, machines)
		if got := ownMounts(); (got == nil) != good {
			t.Errorf("mounts %s, the machine's %q: error %v", mine, machines, got)
		}
	}
}
