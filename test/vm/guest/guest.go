// Package guest is a Kubernetes node in a virtual machine: Debian 12 with systemd, cgroup v2 and a container runtime,
// with kubelot installed as its users install it, and joined by TLS bootstrap to a control plane on this host.
//
// Reads: .bin, what is to be installed. Writes and owns: the bed that its control plane lives in, and the machine.
//
// Guarantees: Start returns when the node is Ready, or without kubelot when the runtime answers; Stop leaves nothing
// behind.
//
// The machine reaches the API server by qemu's network at the address that it has on this host, the bed's. The API
// server reaches the node at the bed's second address: here qemu forwards that one's port 10250, and in the machine it
// belongs to an interface of its own, so that the node reports it. It reaches pods by a proxy, through SSH.
package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/vm/image"
	"kubelot.dev/test/vm/machine"
)

const (
	// Name is the node's and the machine's, the one that the end-to-end tests know.
	Name = "testbed"

	// Patience is how long what comes by itself may take: an emulated machine has about a tenth of its host's speed, and
	// the host may do other things, or stand still for minutes.
	Patience = 30 * time.Minute
	// Each look costs the machine work, so the pauses between them grow.
	firstPause = 250 * time.Millisecond
	maxPause   = 2 * time.Second

	memory   = 3072 // MiB
	cpus     = 2
	nodePort = 10250
)

// Options say what a node is like.
type Options struct {
	// Dir has what the node has on this host; empty is a temporary directory.
	Dir     string
	Out     io.Writer // progress
	Runtime Runtime
	// Patience is how long what comes by itself may take; zero is the constant Patience.
	Patience time.Duration
	// Install is how kubelot comes into the machine. With nil it doesn't, and nothing of a cluster is there.
	Install Installer
	// Payload are more files of this host: where the machine has them below /payload, and where they are.
	Payload map[string]string
	// EndToEnd is the binary of the end-to-end tests, which the machine then has as /payload/bin/e2e.test, with kubectl
	// beside it; empty leaves both out.
	EndToEnd string
	// Suite gives the runtime the images of Kubernetes' end-to-end suite, and a registry that has them.
	Suite bool
}

// Guest is the node, with its control plane.
type Guest struct {
	*cluster.Cluster
	Machine *machine.Machine
	Address netip.Addr // the node's

	opts  Options
	proxy *http.Server // of the API server, to the pods
}

// Start runs the control plane and the machine, and waits until the node has joined and is Ready.
func Start(ctx context.Context, opts Options) (*Guest, error) {
	c, err := cluster.Start(ctx, cluster.Options{
		Dir: opts.Dir, Out: opts.Out, ControlPlane: true, Remote: true, Proxied: true, Registry: opts.Suite,
	})
	if err != nil {
		return nil, err
	}
	if opts.Patience == 0 {
		opts.Patience = Patience
	}
	g := &Guest{Cluster: c, opts: opts, Address: c.Bed.Gateway.Next()}
	type step struct {
		name string
		do   func(context.Context) error
	}
	if err := g.startProxy(ctx); err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	steps := []step{{"boot the machine", together(g.boot, g.bePatient)}}
	if opts.Install == nil {
		steps = append(steps, step{"start the container runtime", g.startRuntime})
	} else {
		// Either keeps one processor busy, and the machine has two.
		steps = append(steps, step{"start the container runtime, install kubelot", together(g.startRuntime, g.Install)},
			step{"join the cluster", g.Join})
	}
	for _, step := range steps {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", step.name, err), g.Stop())
		}
		fmt.Fprintf(opts.Out, "vm: %s: ok, %.0f s\n", step.name, time.Since(begin).Seconds())
	}
	return g, nil
}

// together does several things side by side. The first failure ends the others.
func together(all ...func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, do := range all {
			group.Go(func() error { return do(ctx) })
		}
		return group.Wait()
	}
}

// bePatient has the controllers wait for the node's lease as long as the tests wait for anything. Else they would take
// the Ready condition from all pods when the machine stands still.
func (g *Guest) bePatient(ctx context.Context) error {
	return g.ControlPlane.RestartControllers(ctx, "--node-monitor-grace-period="+g.opts.Patience.String())
}

// boot makes the machine's image and files and boots it.
func (g *Guest) boot(ctx context.Context) error {
	img, err := image.Ensure(ctx, g.Tools, g.opts.Out)
	if err != nil {
		return err
	}
	accelerator, why, err := machine.Accelerator(ctx, img)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.opts.Out, "vm: accelerator %s: %s\n", accelerator, why)
	if err := g.Bed.AddAddress(g.Address); err != nil {
		return err
	}
	ports, err := g.Bed.Ports(1)
	if err != nil {
		return err
	}
	files, err := g.files()
	if err != nil {
		return err
	}
	payload := g.Bed.Path("payload")
	if err := g.fill(ctx, payload); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(payload) }() // the machine has a copy
	g.Machine, err = machine.Start(ctx, machine.Options{
		Dir: g.Bed.Path("machine"), Logs: g.Bed.Logs(), Image: img, SSHPort: ports[0], Files: files, Payload: payload,
		Memory: memory, CPUs: cpus, Accelerator: accelerator,
		Forwards: []machine.Forward{{Host: net.JoinHostPort(g.Address.String(), strconv.Itoa(nodePort)), Guest: nodePort}},
	})
	if err != nil {
		return err
	}
	// The boot doesn't wait for it.
	_, err = g.Machine.Run(ctx, "systemctl start "+strings.TrimPrefix(machine.Payload, "/")+".mount")
	return err
}

// Install has kubelot come into the machine. Nothing is started.
func (g *Guest) Install(ctx context.Context) error { return g.opts.Install.Install(ctx, g.Machine) }

// Upgrade moves one daemon to the next version and returns that version.
func (g *Guest) Upgrade(ctx context.Context, daemon string) (version string, err error) {
	return g.opts.Install.Upgrade(ctx, g.Machine, daemon)
}

// Uninstall stops kubelot and removes it, as the installer's way is. Pods go on.
func (g *Guest) Uninstall(ctx context.Context) error { return g.opts.Install.Remove(ctx, g.Machine) }

// Join tells kubelot the node's address, starts it at once and for each boot, and waits until the node is Ready.
func (g *Guest) Join(ctx context.Context) error {
	// As an administrator would in /etc/default/kubelot. A second time nothing changes.
	_, err := g.Machine.Run(ctx, fmt.Sprintf(
		`grep -q -- --node-ip= /etc/default/kubelot || sed -i 's/^KUBELOT_ARGS="/&--node-ip=%s /' /etc/default/kubelot
systemctl enable --now kubelot.target`, g.Address))
	if err != nil {
		return err
	}
	return g.AwaitReady(ctx)
}

// AwaitReady waits until the node is Ready.
func (g *Guest) AwaitReady(ctx context.Context) error {
	return g.Eventually(ctx, "the node to be Ready", func(ctx context.Context) error {
		n, err := g.KubeNode(ctx)
		if err != nil {
			return err
		}
		return readyCondition(n)
	})
}

// Reboot restarts the machine and waits until the node has reported from this boot and is Ready.
func (g *Guest) Reboot(ctx context.Context) error {
	if err := g.Machine.Reboot(ctx); err != nil {
		return err
	}
	return g.AwaitBoot(ctx)
}

// AwaitBoot waits until the node has reported from this boot of the machine and is Ready.
func (g *Guest) AwaitBoot(ctx context.Context) error {
	boot, err := g.Machine.Run(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	return g.Eventually(ctx, "the node to be Ready after the boot", func(ctx context.Context) error {
		n, err := g.KubeNode(ctx)
		if err != nil {
			return err
		}
		if n.Status.NodeInfo.BootID+"\n" != boot {
			return fmt.Errorf("the node still reports boot %s", n.Status.NodeInfo.BootID)
		}
		return readyCondition(n)
	})
}

// KubeNode is the Node object at the API server.
func (g *Guest) KubeNode(ctx context.Context) (*corev1.Node, error) {
	var n corev1.Node
	if err := g.ControlPlane.Get(ctx, "/api/v1/nodes/"+Name, &n); err != nil {
		return nil, fmt.Errorf("node %s: %w", Name, err)
	}
	return &n, nil
}

func readyCondition(n *corev1.Node) error {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
		if condition.Type == corev1.NodeReady {
			return fmt.Errorf("node %s is not Ready: %s", n.Name, condition.Message)
		}
	}
	return errors.New("node " + n.Name + " has no Ready condition")
}

// Eventually waits until done returns no error.
func (g *Guest) Eventually(ctx context.Context, what string, done func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, g.opts.Patience, fmt.Errorf("waited %v", g.opts.Patience))
	defer cancel()
	last := errors.New("never looked")
	for pause := firstPause; ; pause = min(pause*5/4, maxPause) {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			said := g.Journal(30) //nolint:contextcheck // this one is done, and the journal has its own limit
			return fmt.Errorf("%s: %w: %w; what kubelot said last:\n%s", what, context.Cause(ctx), last, said)
		}
	}
}

// Journal is the last lines of kubelot's and the runtime's logs, or why they can't be had, with the machine's console.
func (g *Guest) Journal(lines int) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := g.Machine.Run(ctx, fmt.Sprintf(
		"journalctl --no-pager -o short-precise -n %d -u 'kubelot*' -u kubelet -u containerd; "+
			"systemctl --no-pager --failed", lines))
	if err != nil {
		return err.Error() + "\nconsole:\n" + g.Machine.Console()
	}
	return out
}

// Kubeconfig is the administrator's.
func (g *Guest) Kubeconfig() string { return g.ControlPlane.AdminKubeconfig() }

// KeepJournal writes the machine's journal next to the other logs, which stay.
func (g *Guest) KeepJournal() {
	path := filepath.Join(g.Bed.Logs(), "journal.log")
	if err := os.WriteFile(path, []byte(g.Journal(5000)), 0o644); err != nil {
		fmt.Fprintln(g.opts.Out, "vm: keep the machine's journal:", err)
	} else {
		fmt.Fprintln(g.opts.Out, "vm: the machine's journal is in", path)
	}
}

// End is Stop after tests that ended with code. If they failed, the machine's journal is kept. It returns the code that
// the process is to end with.
func (g *Guest) End(code int) int {
	if code != 0 {
		g.KeepJournal()
	}
	if err := g.Stop(); err != nil {
		fmt.Fprintln(g.opts.Out, "vm: stop the machine:", err)
		return 1
	}
	return code
}

// Stop ends the machine and the control plane and removes all but the logs, which go too with a temporary directory.
func (g *Guest) Stop() error {
	if g.proxy != nil {
		_ = g.proxy.Close()
	}
	if g.Machine != nil {
		g.Machine.Stop()
	}
	return g.Cluster.Stop()
}
