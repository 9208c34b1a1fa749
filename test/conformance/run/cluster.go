package run

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/node"
)

// onCluster runs test/e2e against a control plane and a node of the test bed.
type onCluster struct {
	cluster *cluster.Cluster
	node    *node.Node
}

func clusterStage(ctx context.Context, o Options) (stage, error) { return newCluster(ctx, o) }

func newCluster(ctx context.Context, o Options) (*onCluster, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(o.Out, "bed"), Out: o.Log,
		ControlPlane: true, Registry: true,
	})
	if err != nil {
		return nil, err
	}
	if _, err := c.PushE2EImages(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	n, err := node.Start(ctx, c, node.Options{Agent: o.Agent})
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return &onCluster{cluster: c, node: n}, nil
}

func (s *onCluster) program() string { return s.cluster.Tools.Path("ginkgo") }

func (s *onCluster) env() []string { return nil }

func (s *onCluster) args(o Options, dir string) []string {
	return clusterArgs(o, dir, s.cluster, s.node.RootDir, s.cluster.CRI.Socket)
}

// clusterArgs are ginkgo's arguments for test/e2e against the cluster, with the node's directory and its runtime's
// socket.
func clusterArgs(o Options, dir string, c *cluster.Cluster, rootDir, socket string) []string {
	args := append([]string{
		"--procs=" + strconv.Itoa(o.Procs), "--timeout=" + o.Timeout.String(), "--no-color", "--silence-skips",
		// Children that outlive a spec would hold up the end of an intercepted output.
		"--output-interceptor-mode=none",
	}, o.Scope.Flags()...)
	return append(args, c.Tools.Path("e2e.test"), "--",
		"--kubeconfig="+c.ControlPlane.AdminKubeconfig(),
		"--kubectl-path="+c.Tools.Path("kubectl"),
		"--kubelet-root-dir="+rootDir,
		"--container-runtime-endpoint=unix://"+socket,
		"--provider=skeleton",
		"--num-nodes=1",
		"--report-dir="+dir,
		"--disable-log-dump",
	)
}

func (s *onCluster) close() error { return errors.Join(s.node.Kill(), s.cluster.Stop()) }
