// Package node runs a Kubernetes node agent against a test bed: kubelot, or the
// upstream kubelet with the same configuration to compare with.
//
// Reads: .bin, the bed, its control plane. Writes: <bed>/kubelet (root
// directory), <bed>/podlogs, <bed>/run, <bed>/kubelet.yaml. Owns: the agent's processes.
//
// Guarantees: Start returns when the Node is Ready and its API listens. Stop ends the agent and
// leaves its pods running, as an upgrade of the agent does.
package node

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/proc"
)

const (
	// Both are for a busy machine.
	startTimeout = 3 * time.Minute
	stopGrace    = time.Minute
)

//go:embed kubelet.yaml
var configTemplate string

// Agent is which program runs the node.
type Agent string

// The agents.
const (
	Kubelot Agent = "kubelot"
	// KubelotCompact is kubelot with all its daemons in one process.
	KubelotCompact Agent = "kubelot-compact"
	Kubelet        Agent = "kubelet"
)

// program is the name of the agent's executable.
func (a Agent) program() string {
	if a == KubelotCompact {
		return string(Kubelot)
	}
	return string(a)
}

// Options say how a node is run.
type Options struct {
	Agent Agent
	Name  string // of the Node object; empty is "testbed"
	// Standalone runs without the API server: static pods only.
	Standalone bool
	// ExtraConfig is appended to the KubeletConfiguration.
	ExtraConfig string
	// ExtraArgs are appended to the command line.
	ExtraArgs []string
	// ExtraEnv is added to the environment.
	ExtraEnv []string
}

// Node is a running agent.
type Node struct {
	Name        string
	Port        int    // of the agent's HTTPS API
	HealthPort  int    // of its /healthz
	ManifestDir string // static pods
	RootDir     string
	PodLogs     string

	cluster *cluster.Cluster
	opts    Options
	process *proc.Process
}

// Start runs the agent and waits until the Node is Ready and its API listens.
func Start(ctx context.Context, c *cluster.Cluster, opts Options) (*Node, error) {
	if opts.Name == "" {
		opts.Name = "testbed"
	}
	n := &Node{
		Name: opts.Name, cluster: c, opts: opts,
		ManifestDir: c.Bed.Path("manifests"),
		RootDir:     c.Bed.Path("kubelet"),
		PodLogs:     c.Bed.Path("podlogs"),
	}
	if err := n.prepare(); err != nil {
		return nil, err
	}
	if err := n.Launch(ctx); err != nil {
		return nil, err
	}
	return n, nil
}

// Attach is an agent that runs on this machine already, with the kubelet's own paths and ports. It can't be started or
// ended, and its log is elsewhere.
func Attach(c *cluster.Cluster, name string) *Node {
	return &Node{
		Name: name, cluster: c, Port: 10250, HealthPort: 10248, ManifestDir: "/etc/kubernetes/manifests",
		RootDir: "/var/lib/kubelet", PodLogs: "/var/log/pods",
	}
}

func (n *Node) prepare() error {
	for _, dir := range []string{n.ManifestDir, n.RootDir, n.PodLogs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("prepare node: %w", err)
		}
	}
	if err := mountTmpfs(n.RunDir()); err != nil {
		return err
	}
	ports, err := n.cluster.Bed.Ports(2)
	if err != nil {
		return err
	}
	n.Port, n.HealthPort = ports[0], ports[1]
	if err := os.WriteFile(n.cluster.Bed.Path("resolv.conf"), []byte("nameserver "+n.cluster.Bed.Gateway.String()+"\n"),
		0o644); err != nil {
		return fmt.Errorf("prepare node: %w", err)
	}
	return n.writeConfig()
}

func (n *Node) writeConfig() error {
	var out bytes.Buffer
	settings := map[string]any{
		"Bed": n.cluster.Bed, "Node": n, "Standalone": n.opts.Standalone,
		"Socket": n.cluster.Bed.CRISocket(), "Resolv": n.cluster.Bed.Path("resolv.conf"),
		"Plugins": n.cluster.Bed.Path("volumeplugins"),
	}
	if !n.opts.Standalone {
		settings["CA"] = n.cluster.ControlPlane.CAFile()
	}
	if err := template.Must(template.New("").Parse(configTemplate)).Execute(&out, settings); err != nil {
		return fmt.Errorf("configure node: %w", err)
	}
	out.WriteString(n.opts.ExtraConfig)
	if err := os.WriteFile(n.ConfigFile(), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("configure node: %w", err)
	}
	return nil
}

// ConfigFile is the path of the KubeletConfiguration.
func (n *Node) ConfigFile() string { return n.cluster.Bed.Path("kubelet.yaml") }

// RunDir has the bus, its store and the sockets. It is on tmpfs, as /run is.
func (n *Node) RunDir() string { return n.cluster.Bed.Path("run") }

// Launch runs the agent, for the first time or after Stop or Kill.
func (n *Node) Launch(ctx context.Context) error {
	args, err := n.args()
	if err != nil {
		return err
	}
	if n.opts.Agent == Kubelet { // as its unit does (deploy/systemd/disown.conf)
		if err := bus.Disown(n.RunDir()); err != nil {
			return err
		}
	}
	n.process, err = proc.Start(proc.Spec{
		Name: string(n.opts.Agent), Path: n.cluster.Tools.Path(n.opts.Agent.program()),
		Args: args, Env: n.opts.ExtraEnv, Dir: n.cluster.Bed.Logs(),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	ready := n.ready
	if n.opts.Standalone {
		ready = func(ctx context.Context) error {
			return proc.Healthy(ctx, fmt.Sprintf("http://127.0.0.1:%d/healthz", n.HealthPort))
		}
	}
	if err := n.process.WaitReady(ctx, ready); err != nil {
		return errors.Join(err, n.Kill())
	}
	return nil
}

func (n *Node) args() ([]string, error) {
	var args []string
	if n.opts.Agent.program() == string(Kubelot) {
		args = append(args, "up", "--run-dir="+n.RunDir())
	}
	if n.opts.Agent == KubelotCompact {
		args = append(args, "--compact")
	}
	args = append(args,
		"--config="+n.ConfigFile(),
		"--root-dir="+n.RootDir,
		"--cert-dir="+n.cluster.Bed.Path("kubelet-pki"),
		"--hostname-override="+n.Name,
		"--node-ip="+n.cluster.Bed.Gateway.String(),
	)
	if !n.opts.Standalone {
		kubeconfig, err := n.cluster.ControlPlane.NodeKubeconfig(n.Name)
		if err != nil {
			return nil, err
		}
		args = append(args, "--kubeconfig="+kubeconfig)
	}
	return append(args, n.opts.ExtraArgs...), nil
}

func (n *Node) ready(ctx context.Context) error {
	var node corev1.Node
	if err := n.cluster.ControlPlane.Get(ctx, "/api/v1/nodes/"+n.Name, &node); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			if condition.Status == corev1.ConditionTrue {
				return n.listens(ctx)
			}
			return fmt.Errorf("node %s is not Ready: %s", n.Name, condition.Message)
		}
	}
	return errors.New("node " + n.Name + " has no Ready condition")
}

// listens is an error while nothing listens at the port of the agent's API. An agent makes its node Ready without it.
func (n *Node) listens(ctx context.Context) error {
	address := net.JoinHostPort(n.cluster.Bed.Gateway.String(), strconv.Itoa(n.Port))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("node %s is Ready, but its API can't be reached: %w", n.Name, err)
	}
	return conn.Close()
}

// PID of the agent; for kubelot of its supervisor.
func (n *Node) PID() int { return n.process.PID() }

// LogPath is the agent's log; empty for one that is attached.
func (n *Node) LogPath() string {
	if n.process == nil {
		return ""
	}
	return n.process.LogPath()
}

// Stop ends the agent and leaves the pods running.
func (n *Node) Stop() { n.process.Stop(stopGrace) }

// Kill ends the agent with SIGKILL, a crew with all its daemons: they would end in order and in their own time once the
// supervisor is gone, and another crew can't start before.
func (n *Node) Kill() error {
	// A supervisor that stands still starts no more of them.
	_ = n.process.Signal(syscall.SIGSTOP)
	children, err := bed.Children(n.process.PID())
	n.process.Kill()
	for _, pid := range children {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d of %s: %w", pid, n.opts.Agent, err)
		}
	}
	for begin := time.Now(); len(bed.Running(children)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > stopGrace {
			return fmt.Errorf("processes %v of %s were killed %s ago and aren't gone", children, n.opts.Agent, stopGrace)
		}
	}
	return err
}

// Remove ends the agent and clears its directories, so that another agent can
// follow in the same bed. The pods should be gone by then.
func (n *Node) Remove() error {
	n.Stop()
	return n.cluster.Bed.Discard("kubelet", "podlogs", "manifests", "kubelet-pki", "run")
}

// mountTmpfs mounts a tmpfs on the directory. One that is there stays, with what an earlier agent has left in it, as
// /run of a real node does.
func mountTmpfs(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("create run directory: %w", err)
	}
	var there syscall.Statfs_t
	if err := syscall.Statfs(dir, &there); err != nil {
		return fmt.Errorf("read what is mounted on %s: %w", dir, err)
	}
	if there.Type == unix.TMPFS_MAGIC {
		return nil
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}
