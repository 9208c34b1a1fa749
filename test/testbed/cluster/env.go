package cluster

import (
	"fmt"
	"os"
	"strings"
)

// WriteEnv writes <dir>/env, a shell file that points kubectl, ctr and crictl
// to this cluster, and <dir>/node.kubeconfig, and returns env's path.
func (c *Cluster) WriteEnv() (string, error) {
	lines := []string{
		"export PATH=" + c.Tools.Bin + ":$PATH",
		"export CONTAINERD_ADDRESS=" + c.CRI.Socket,
		"export CONTAINERD_NAMESPACE=k8s.io",
		"export CONTAINER_RUNTIME_ENDPOINT=unix://" + c.CRI.Socket,
		"export KUBELOT_CGROUP_ROOT=" + c.Bed.CgroupRoot,
		"export KUBELOT_NODE_IP=" + c.Bed.Gateway.String(),
	}
	if c.ControlPlane != nil {
		kubeconfig, err := c.ControlPlane.NodeKubeconfig("testbed")
		if err != nil {
			return "", err
		}
		if err := os.Rename(kubeconfig, c.Bed.Path("node.kubeconfig")); err != nil {
			return "", fmt.Errorf("write node kubeconfig: %w", err)
		}
		lines = append(lines,
			"export KUBECONFIG="+c.ControlPlane.AdminKubeconfig(),
			"export KUBELOT_NODE_KUBECONFIG="+c.Bed.Path("node.kubeconfig"),
			"export KUBELOT_CLUSTER_CA="+c.ControlPlane.CAFile())
	}
	if c.Registry != nil {
		lines = append(lines, "export KUBELOT_REGISTRY="+c.Registry.Addr)
	}
	path := c.Bed.Path("env")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}
