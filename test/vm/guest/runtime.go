package guest

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"kubelot.dev/test/testbed/cri"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/vm/machine"
)

//go:embed files
var texts embed.FS

// Runtime is the container runtime of the node.
type Runtime string

// The runtimes.
const (
	// Containerd is containerd and runc in the versions of the test bed.
	Containerd Runtime = "containerd"
	// DebianContainerd is what `apt install containerd` gives on Debian 12: containerd 1.6 and runc 1.1.
	DebianContainerd Runtime = "debian-containerd"
)

// programs are those of the runtime that come with the payload.
func (r Runtime) programs() []string {
	if r == DebianContainerd {
		return nil
	}
	return []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc"}
}

// config is the file that has the runtime's configuration.
func (r Runtime) config() string {
	if r == DebianContainerd {
		return "containerd-debian.toml"
	}
	return "containerd.toml"
}

// files are what the machine has of its own before kubelot is there.
func (g *Guest) files() ([]machine.File, error) {
	list := []machine.File{
		{Path: "/etc/hostname", Text: Name + "\n"},
		{Path: "/etc/hosts", Text: "127.0.0.1 localhost\n" + g.Address.String() + " " + Name + "\n"},
		// An emulated machine may need longer than systemd's 90 s until it has found its disks.
		{Path: "/etc/fstab", Text: machine.PayloadDevice + " " + machine.Payload +
			" ext4 ro,nofail,x-systemd.device-timeout=20min 0 0\n"},
		// The node's address, see the package's comment.
		{Path: "/etc/systemd/network/node.netdev", Text: "[NetDev]\nName=node\nKind=dummy\n"},
		{Path: "/etc/systemd/network/node.network", Text: "[Match]\nName=node\n[Network]\nAddress=" + g.Address.String() +
			"/32\nLinkLocalAddressing=no\n"},
	}
	for _, program := range g.opts.Runtime.programs() {
		list = append(list, machine.File{
			Path: "/usr/local/bin/" + program, Link: machine.Payload + "/bin/" + program,
		})
	}
	if g.opts.Runtime == Containerd {
		list = append(list, machine.File{Path: "/etc/systemd/system/containerd.service", Text: text("containerd.service")})
	}
	if g.opts.Install == nil {
		return list, nil
	}
	more, err := g.ofNode()
	return append(list, more...), err
}

// CNI is the network configuration of the node's pods.
func CNI() string { return text("cni.conflist") }

// ofNode is what makes a node of a machine: the settings of the kernel and of the runtime, and what kubelot joins with.
func (g *Guest) ofNode() ([]machine.File, error) {
	ca, err := os.ReadFile(g.ControlPlane.CAFile())
	if err != nil {
		return nil, fmt.Errorf("files of the machine: %w", err)
	}
	bootstrap, err := g.ControlPlane.BootstrapKubeconfig()
	if err != nil {
		return nil, err
	}
	join, err := os.ReadFile(bootstrap)
	if err != nil {
		return nil, fmt.Errorf("files of the machine: %w", err)
	}
	list := []machine.File{
		{Path: "/etc/modules-load.d/node.conf", Text: "overlay\nbr_netfilter\n"},
		{Path: "/etc/sysctl.d/node.conf", Text: "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n"},
		{Path: "/etc/containerd/config.toml", Text: text(g.opts.Runtime.config())},
		{Path: "/etc/cni/net.d/10-pods.conflist", Text: text("cni.conflist")},
		{Path: "/etc/kubernetes/pki/ca.crt", Text: string(ca)},
		{Path: "/etc/kubernetes/manifests/.keep"},
		{Path: "/etc/kubernetes/bootstrap-kubelet.conf", Mode: 0o600, Text: string(join)},
		{Path: "/var/lib/kubelet/config.yaml", Text: text("kubelet.yaml")},
	}
	if g.Registry != nil {
		list = append(list, machine.File{
			Path: "/etc/containerd/certs.d/_default/hosts.toml", Text: mirror(g.Registry.Addr),
		})
	}
	return list, nil
}

// mirror is containerd's configuration of a registry on this host's loopback as the mirror of all others.
func mirror(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return cri.RegistryHosts(machine.Host + ":" + port)
}

// text is an embedded file with the references that belong to it.
func text(name string) string {
	data, err := texts.ReadFile("files/" + name)
	if err != nil {
		panic(err) // it is not in the source
	}
	return strings.ReplaceAll(string(data), "PAUSE", images.PauseRef)
}

// fill makes the payload: the runtime's programs, the images of the tests' pods, and kubelot.
func (g *Guest) fill(ctx context.Context, dir string) error {
	for _, name := range []string{"bin", "images"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return fmt.Errorf("fill the machine's payload: %w", err)
		}
	}
	programs := map[string]string{}
	for _, program := range g.opts.Runtime.programs() {
		programs[program] = g.Tools.Path(program)
	}
	if g.opts.EndToEnd != "" {
		programs["e2e.test"], programs["kubectl"] = g.opts.EndToEnd, g.Tools.Path("kubectl")
	}
	for name, path := range programs {
		if err := copyFile(path, filepath.Join(dir, "bin", name)); err != nil {
			return fmt.Errorf("fill the machine's payload: %w", err)
		}
	}
	for name, path := range g.opts.Payload {
		to := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), copyFile(path, to)); err != nil {
			return fmt.Errorf("fill the machine's payload: %w", err)
		}
	}
	all, err := g.images(ctx)
	if err != nil {
		return err
	}
	if err := images.Archive(filepath.Join(dir, "images", "tests.tar"), all...); err != nil {
		return err
	}
	if g.opts.Install == nil {
		return nil
	}
	return g.opts.Install.Fill(filepath.Join(dir, kubelotDir))
}

// images are those that the runtime has from the start.
func (g *Guest) images(ctx context.Context) (all []images.Image, err error) {
	if g.Busybox, err = images.Busybox("/bin/busybox"); err != nil {
		return nil, err
	}
	if !g.opts.Suite {
		pause, err := images.Pause(g.Tools.Path("pause"))
		return []images.Image{pause, g.Busybox}, err
	}
	all, err = g.PushE2EImages(ctx) // its pause image is the runtime's too
	return append(all, g.Busybox), err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Close()
}

// startRuntime waits for the runtime, which systemd has started, and gives it the images.
func (g *Guest) startRuntime(ctx context.Context) error {
	err := g.Eventually(ctx, "containerd to answer", func(ctx context.Context) error {
		_, err := g.Machine.Run(ctx, "systemctl is-active containerd && ctr version")
		return err
	})
	if err != nil {
		return err
	}
	_, err = g.Machine.Run(ctx, "ctr -n k8s.io images import "+machine.Payload+"/images/tests.tar")
	return err
}
