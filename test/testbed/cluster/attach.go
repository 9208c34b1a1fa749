package cluster

import (
	"fmt"
	"os"
	"strings"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/controlplane"
	"kubelot.dev/test/testbed/cri"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/tools"
)

// Attach is the cluster of a node that runs on this machine already, for tests that are run on it. The directory has
// what a bed's has: admin.kubeconfig and pki/ca.crt, run as a link to the agent's run directory, and address, a file
// with the node's. Stop, and what else starts and ends programs, can't be used.
func Attach(dir string) (*Cluster, error) {
	b, err := bed.Attached(dir)
	if err != nil {
		return nil, err
	}
	address, err := os.ReadFile(b.Path("address"))
	if err != nil {
		return nil, fmt.Errorf("attach to a node: %w", err)
	}
	if err := b.Gateway.UnmarshalText([]byte(strings.TrimSpace(string(address)))); err != nil {
		return nil, fmt.Errorf("attach to a node: %w", err)
	}
	c := &Cluster{Bed: b, Tools: &tools.Box{Root: dir, Bin: b.Path("bin")}, Busybox: images.Image{Ref: images.BusyboxRef}}
	if c.ControlPlane, err = controlplane.Attach(b); err != nil {
		return nil, err
	}
	c.CRI, err = cri.Attach("/run/containerd/containerd.sock")
	return c, err
}
