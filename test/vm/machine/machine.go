// Package machine runs a virtual machine under qemu: without any privilege but the use of /dev/kvm where that works,
// with a network of qemu's own, and with a disk that is an overlay of an image.
//
// Reads: the image, the payload. Writes: in Options.Dir the overlay, the payload's disk and keys; in Options.Logs
// machine.log, the console, and machine.pid. Owns: qemu's process.
//
// Guarantees: Start returns when commands can be run in the machine. The machine ends with Stop, or with the process
// that started it, however that ends. An error of a machine that doesn't answer has the end of its console.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"kubelot.dev/bus/pause"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/vm/image"
)

// Limits for a machine that is emulated, on a host that does other things too, or stands still for minutes.
const (
	bootTimeout    = 30 * time.Minute
	commandTimeout = 30 * time.Minute
	stopGrace      = 5 * time.Second
	// bootPause keeps the question whether the machine is up from being most of what it does.
	bootPause = 500 * time.Millisecond
)

// quick is what spares an emulated machine work that no test is about: defences of the kernel, memory that is cleared
// when it is taken, long waits at the end of namespaces and cgroups, and catalogues that the image has already.
const quick = "mitigations=off init_on_alloc=0 rcupdate.rcu_expedited=1 systemd.condition_needs_update=0"

// Payload is where the machine has the directory of Options.Payload, and Device the disk that it is on.
const (
	Payload       = "/payload"
	PayloadDevice = "/dev/vdb"
)

// Forward has a port of this host lead to one of the machine.
type Forward struct {
	Host  string // address:port
	Guest int
}

// File is put on the machine's disk before systemd starts, at each boot.
type File struct {
	Path string // in the machine
	Mode os.FileMode
	Text string
	Link string // makes a symbolic link to it instead
}

// Host is this host's loopback as the machine reaches it, an address of qemu's network.
const Host = "10.0.2.2"

// Options say what a machine has.
type Options struct {
	Dir     string
	Logs    string
	Image   *image.Image
	SSHPort int // on loopback, free
	Files   []File
	// Payload is a directory that the machine has read-only. It is copied at the start.
	Payload  string
	Forwards []Forward
	// Memory is in MiB.
	Memory int
	CPUs   int
	// Topology arranges the processors; without one they are CPUs sockets of a single NUMA node.
	Topology Topology
	// Accelerator is what qemu is told with -accel.
	Accelerator string
}

// Machine is a running machine.
type Machine struct {
	opts    Options
	process *proc.Process
	signer  ssh.Signer    // the user's key
	host    ssh.PublicKey // of the machine

	mu     sync.Mutex
	client *ssh.Client // nil while there is no connection
}

// Start makes the disks, boots the machine, and waits until it takes commands.
func Start(ctx context.Context, opts Options) (*Machine, error) {
	m := &Machine{opts: opts}
	if err := m.prepare(ctx); err != nil {
		return nil, fmt.Errorf("prepare the machine: %w", err)
	}
	if err := m.Launch(ctx); err != nil {
		m.Stop()
		return nil, err
	}
	return m, nil
}

func (m *Machine) prepare(ctx context.Context) error {
	if err := os.MkdirAll(m.opts.Dir, 0o755); err != nil {
		return err
	}
	keys, err := m.makeKeys()
	if err != nil {
		return err
	}
	if err := writeSeed(ctx, m.path("initrd.cpio"), m.opts.Image.Initrd, append(keys, m.opts.Files...)); err != nil {
		return err
	}
	if m.opts.Payload != "" {
		if err := makeDisk(ctx, m.path("payload.img"), m.opts.Payload); err != nil {
			return err
		}
	}
	return run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", m.opts.Image.Disk, m.path("disk.qcow2"))
}

// Launch boots the machine, for the first time or after its end, and waits until it takes commands.
func (m *Machine) Launch(ctx context.Context) error {
	process, err := proc.Start(proc.Spec{
		Name: "machine", Path: "qemu-system-x86_64", Args: m.args(), Dir: m.opts.Logs,
	})
	if err != nil {
		return err
	}
	m.process = process
	return m.awaitBoot(ctx, "")
}

func (m *Machine) args() []string {
	network := "user,id=net,hostfwd=tcp:127.0.0.1:" + strconv.Itoa(m.opts.SSHPort) + "-:22"
	for _, forward := range m.opts.Forwards {
		network += fmt.Sprintf(",hostfwd=tcp:%s-:%d", forward.Host, forward.Guest)
	}
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-serial", "stdio",
		"-accel", m.opts.Accelerator, "-m", strconv.Itoa(m.opts.Memory),
		"-kernel", m.opts.Image.Kernel, "-initrd", m.path("initrd.cpio"),
		// The first console is the one that the kernel's messages go to; interfaces have their old names.
		"-append", "console=ttyS0 net.ifnames=0 panic=-1 loglevel=5 systemd.show_status=1 " + quick,
		"-drive", "if=virtio,format=qcow2,cache=unsafe,discard=unmap,file=" + m.path("disk.qcow2"),
	}
	args = append(args, m.opts.processors()...)
	if m.opts.Payload != "" {
		args = append(args, "-drive", "if=virtio,format=raw,readonly=on,file="+m.path("payload.img"))
	}
	// Without a ROM the firmware doesn't prepare to boot from the network.
	return append(args, "-netdev", network, "-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci")
}

// awaitBoot waits until the machine answers with another boot's ID than the given one.
func (m *Machine) awaitBoot(ctx context.Context, before string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("waited %v", bootTimeout))
	defer cancel()
	err := m.process.WaitReady(ctx, func(ctx context.Context) error {
		id, err := m.bootID(ctx)
		if err == nil && id == before {
			err = errors.New("it is still up")
		}
		if err != nil {
			pause.For(ctx, bootPause)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the machine doesn't boot: %w", err)
	}
	return nil
}

func (m *Machine) bootID(ctx context.Context) (string, error) {
	id, err := m.Run(ctx, "cat /proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(id), err
}

// Reboot has systemd restart the machine and waits until it takes commands again.
func (m *Machine) Reboot(ctx context.Context) error {
	before, err := m.bootID(ctx)
	if err != nil {
		return err
	}
	// The connection may end before the answer comes.
	_, _ = m.Run(ctx, "systemctl reboot")
	return m.awaitBoot(ctx, before)
}

// PowerOff has systemd switch the machine off and waits for qemu's end. Launch boots it again, with its disk.
func (m *Machine) PowerOff(ctx context.Context) error {
	_, _ = m.Run(ctx, "systemctl poweroff")
	ctx, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("waited %v", bootTimeout))
	defer cancel()
	defer m.disconnect()
	select {
	case <-m.process.Done():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the machine doesn't switch itself off: %w; end of its console:\n%s", context.Cause(ctx),
			m.Console())
	}
}

// Stop ends qemu, as a power cut does.
func (m *Machine) Stop() {
	m.disconnect()
	m.process.Stop(stopGrace)
}

// Console is the end of what the machine has written to its console.
func (m *Machine) Console() string {
	if m.process == nil {
		return ""
	}
	return printable(m.process.LogTail(3000))
}

// printable leaves out how a console is coloured and moved about on.
func printable(text string) string {
	var out strings.Builder
	escape := false
	for _, c := range text {
		switch {
		case c == '\x1b':
			escape = true
		case escape:
			// A sequence ends with a letter.
			escape = (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
		case c == '\n' || c == '\t' || c >= ' ':
			out.WriteRune(c)
		}
	}
	return out.String()
}

func (m *Machine) path(name string) string { return filepath.Join(m.opts.Dir, name) }
