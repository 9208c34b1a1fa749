// Package kit is what the end-to-end tests have in common: a bed with kubelot on it, a namespace per test,
// waits that follow watches, and a look inside containers.
//
// Reads: .bin, or the directory that KUBELOT_BIN names; KUBELOT_LAYOUT. Writes and owns: the bed, in a temporary
// directory. With KUBELOT_NODE, a directory as of cluster.Attach, the tests run on a node that is there already, on
// this machine: those that need another configuration, or parts that it hasn't, can't be run.
//
// Guarantees: a failed test prints what a person would ask for first (kubectl describe, the tap history of its
// pods, kubelot's last log lines); Stop leaves nothing behind.
package kit

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/node"
)

// NodeName is the node of every bed.
const NodeName = "testbed"

// Options say what a bed has besides containerd and kubelot.
type Options struct {
	// Scripted takes the scripted runtime, which starts no processes, instead of containerd.
	Scripted bool
	// Standalone leaves the control plane out.
	Standalone bool
	// Registry runs a registry on loopback.
	Registry bool
	// Config is appended to the KubeletConfiguration.
	Config string
	// Args are appended to kubelot's command line.
	Args []string
}

// layoutVariable is the environment variable that chooses the layout of every kubelot: "compact" for all daemons in one
// process.
const layoutVariable = "KUBELOT_LAYOUT"

// nodeVariable is the environment variable that names the directory of a node that is there already.
const nodeVariable = "KUBELOT_NODE"

// layout is the agent in the layout that is chosen.
func layout(agent node.Agent) node.Agent {
	if agent == node.Kubelot && os.Getenv(layoutVariable) == "compact" {
		return node.KubelotCompact
	}
	return agent
}

// Compact reports whether the bed's daemons are one process.
func (b *Bed) Compact() bool { return b.agent == node.KubelotCompact }

// NotCompact leaves a test out where the daemons are one process; reason says why it makes no sense then.
func (b *Bed) NotCompact(t testing.TB, reason string) {
	t.Helper()
	if b.Compact() {
		t.Skip("not in the compact layout: " + reason)
	}
}

// Containerd1 reports whether the container runtime is a containerd before 2.0, which lacks much (docs/parity.md).
func (b *Bed) Containerd1(t testing.TB) bool {
	t.Helper()
	name, version := b.runtime(t)
	return name == "containerd" && strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
}

// RuntimeName is what the container runtime calls itself, as in the IDs of containers.
func (b *Bed) RuntimeName(t testing.TB) string {
	t.Helper()
	name, _ := b.runtime(t)
	return name
}

// CRIO reports whether the container runtime is CRI-O.
func (b *Bed) CRIO(t testing.TB) bool {
	t.Helper()
	return b.RuntimeName(t) == "cri-o"
}

// NotCRIO leaves a test out where the container runtime is CRI-O; reason says what that lacks or does otherwise.
func (b *Bed) NotCRIO(t testing.TB, reason string) {
	t.Helper()
	if b.CRIO(t) {
		t.Skip("not with CRI-O: " + reason)
	}
}

func (b *Bed) runtime(t testing.TB) (name, version string) {
	t.Helper()
	v, err := b.CRI.Runtime().Version(t.Context(), &runtimeapi.VersionRequest{})
	if err != nil {
		t.Fatal("ask the container runtime for its version:", err)
	}
	return v.GetRuntimeName(), v.GetRuntimeVersion()
}

// Bed is a running node with its control plane.
type Bed struct {
	*cluster.Cluster
	Node   *node.Node
	Client *kubernetes.Clientset // nil without a control plane
	// Config is what StartNode appends to the KubeletConfiguration.
	Config string

	agent    node.Agent
	attached bool // to a node that isn't ours
	dynamic  *dynamic.DynamicClient
}

// Start runs a bed and waits until its node is Ready.
func Start(ctx context.Context, o Options) (*Bed, error) {
	if dir := os.Getenv(nodeVariable); dir != "" {
		return attach(dir)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Out: os.Stderr, ControlPlane: !o.Standalone, Registry: o.Registry, Scripted: o.Scripted,
	})
	if err != nil {
		return nil, err
	}
	b := &Bed{Cluster: c}
	if err := b.start(ctx, o); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

// Over is a bed whose cluster runs already, with its node on another machine: Node is nil, and what looks at processes
// or files can't be used.
func Over(c *cluster.Cluster) (*Bed, error) {
	b := &Bed{Cluster: c}
	return b, b.connect()
}

// attach is a bed on the node that this machine is.
func attach(dir string) (*Bed, error) {
	c, err := cluster.Attach(dir)
	if err != nil {
		return nil, err
	}
	b, err := Over(c)
	if err != nil {
		return nil, err
	}
	b.Node, b.attached = node.Attach(c, NodeName), true
	// It may be an emulated machine.
	Patience = 10 * time.Minute
	return b, nil
}

// StartWithoutNode runs a bed for one test, with a control plane that has no node yet, and stops it at the test's end.
func StartWithoutNode(t testing.TB) *Bed {
	t.Helper()
	c, err := cluster.Start(t.Context(), cluster.Options{Out: os.Stderr, ControlPlane: true})
	if err != nil {
		t.Fatal(err)
	}
	b := &Bed{Cluster: c}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := b.connect(); err != nil {
		t.Fatal(err)
	}
	return b
}

// StartNode runs the agent, with the defaults of Start and these arguments, and waits until the node is Ready.
func (b *Bed) StartNode(ctx context.Context, agent node.Agent, args ...string) error {
	return b.startNode(ctx, node.Options{Agent: agent, ExtraConfig: b.Config, ExtraArgs: args})
}

// KubeNode is the Node object at the API server.
func (b *Bed) KubeNode(t testing.TB) (n *corev1.Node) {
	t.Helper()
	Eventually(t, "the Node object", func() (err error) {
		n, err = b.Client.CoreV1().Nodes().Get(t.Context(), NodeName, metav1.GetOptions{})
		return err
	})
	return n
}

// connect makes the clients of the API server.
func (b *Bed) connect() error {
	config, err := b.ControlPlane.RESTConfig()
	if err != nil {
		return err
	}
	if b.Client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("start bed: %w", err)
	}
	if b.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return fmt.Errorf("start bed: %w", err)
	}
	return nil
}

func (b *Bed) start(ctx context.Context, o Options) error {
	if !o.Standalone {
		if err := b.connect(); err != nil {
			return err
		}
	}
	return b.startNode(ctx, node.Options{
		Agent: node.Kubelot, Standalone: o.Standalone, ExtraConfig: o.Config,
		ExtraArgs: o.Args,
	})
}

func (b *Bed) startNode(ctx context.Context, o node.Options) (err error) {
	o.Name, o.Agent = NodeName, layout(o.Agent)
	if dir := os.Getenv("KUBELOT_BIN"); dir != "" && o.Agent != node.Kubelet {
		// A test that has made a directory of links has its way.
		o.ExtraArgs = append([]string{"--bin-dir=" + dir}, o.ExtraArgs...)
	}
	b.agent = o.Agent
	b.Node, err = node.Start(ctx, b.Cluster, o)
	return err
}

// Stop ends the bed and removes it.
func (b *Bed) Stop() error {
	var err error
	if b.Node != nil {
		err = b.Node.Kill()
	}
	return errors.Join(err, b.Cluster.Stop())
}

// Main is a TestMain's body: it runs the tests on one bed, which it puts into *into.
func Main(m *testing.M, into **Bed, o Options) int {
	flag.Parse()
	// The tests wait more than they work.
	if !set("test.parallel") {
		_ = flag.Set("test.parallel", "12")
	}
	bed, err := Start(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the test bed:", err)
		return 1
	}
	*into = bed
	code := m.Run()
	if bed.attached {
		return code
	}
	if code == 0 && !o.Standalone {
		if err := bed.awaitClean(); err != nil {
			fmt.Fprintf(os.Stderr, "all tests are done and their namespaces deleted, but the node isn't clean: %v\n%s\n", err,
				last(bed.tap(""), 60))
			code = 1
		}
	}
	if err := bed.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the test bed:", err)
		return 1
	}
	return code
}

// awaitClean waits until nothing is left of any pod.
func (b *Bed) awaitClean() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var found error
	for {
		err := b.Clean(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(found, err) // the last look was cut short, and the one before says more
		}
		found = err
		time.Sleep(100 * time.Millisecond)
	}
}

func set(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}
