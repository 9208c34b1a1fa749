package run

import (
	"context"
	"fmt"
	"path/filepath"

	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/vm/guest"
)

// onMachine runs test/e2e against a node in a virtual machine, with systemd, cgroup v2 and the runtime of its kind.
type onMachine struct {
	guest *guest.Guest
}

func machineStage(ctx context.Context, o Options) (stage, error) {
	if o.Agent != node.Kubelot {
		return nil, fmt.Errorf("the machine has no %s: want %s", o.Agent, node.Kubelot)
	}
	install, err := guest.From(o.Machine, "")
	if err != nil {
		return nil, err
	}
	g, err := guest.Start(ctx, guest.Options{
		Dir: filepath.Join(o.Out, "bed"), Out: o.Log, Runtime: o.Runtime, Install: install, Suite: true,
	})
	if err != nil {
		return nil, err
	}
	return &onMachine{guest: g}, nil
}

func (s *onMachine) program() string { return s.guest.Tools.Path("ginkgo") }

func (s *onMachine) env() []string { return nil }

func (s *onMachine) args(o Options, dir string) []string {
	// The paths are those in the machine.
	return clusterArgs(o, dir, s.guest.Cluster, "/var/lib/kubelet", "/run/containerd/containerd.sock")
}

func (s *onMachine) close() error {
	s.guest.KeepJournal()
	return s.guest.Stop()
}
