// Package tools finds or builds the programs a test bed runs, into .bin at the
// root of the repository.
//
// Reads: the repository, Go's module proxy, Debian's package mirror.
// Writes: .bin. Owns: .bin.
//
// Guarantees: what is there in the wanted version is left alone; a build that
// fails leaves the previous binary; two builds never run at once.
package tools

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Versions of what is built. They are part of each binary's stamp.
const (
	KubernetesVersion = "v1.36.3"
	containerdVersion = "v2.4.2"
	runcVersion       = "v1.5.2"
)

// ProgramsEnv names the environment variable that says which directory has all programs, on a machine without the
// repository and Go: nothing is built or installed there.
const ProgramsEnv = "TESTBED_PROGRAMS"

// Box is the set of programs, after Ensure.
type Box struct {
	Root string // of the repository
	Bin  string // directory of the programs
	// Given is for programs that are there without the repository, see ProgramsEnv.
	Given bool

	out io.Writer
}

// Find locates the repository: KUBELOT_ROOT, or the nearest go.work upwards
// from the working directory or from this program. Progress lines go to out.
func Find(out io.Writer) (*Box, error) {
	if out == nil {
		out = io.Discard
	}
	root := os.Getenv("KUBELOT_ROOT")
	if root == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, fmt.Errorf("find the repository: %w", err)
		}
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("find the repository: %w", err)
		}
		if root = workspace(dir, filepath.Dir(program)); root == "" {
			return nil, fmt.Errorf("no go.work in %s or above: run inside the repository or set KUBELOT_ROOT to it", dir)
		}
	}
	return &Box{Root: root, Bin: filepath.Join(root, ".bin"), out: out}, nil
}

// workspace is the first directory with a go.work, upwards from each start.
func workspace(starts ...string) string {
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
				return dir
			}
			if dir == "/" {
				break
			}
		}
	}
	return ""
}

// Parts say which programs a test bed needs.
type Parts int

// The parts of a test bed.
const (
	RuntimeOnly      Parts = iota // containerd, runc and what they need
	WithControlPlane              // also the control plane, kubectl and the kubelet
)

// Ensure builds what is missing or outdated of the parts. Minutes when all is missing, a fraction of a second when
// nothing is.
func Ensure(ctx context.Context, out io.Writer, parts Parts) (*Box, error) {
	if dir := os.Getenv(ProgramsEnv); dir != "" {
		return &Box{Bin: dir, Given: true, out: io.Discard}, nil
	}
	box, err := Find(out)
	if err != nil {
		return nil, err
	}
	unlock, err := box.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := box.packages(ctx, debianPackages); err != nil {
		return nil, err
	}
	if err := box.ensureAll(ctx, box.builds(parts)); err != nil {
		return nil, err
	}
	if parts == WithControlPlane {
		err = box.linkComponents()
	}
	return box, err
}

// EnsureAgnhost builds Kubernetes' test image program on demand and returns its path.
func (b *Box) EnsureAgnhost(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.agnhost())
}

// EnsureSampleDevicePlugin builds Kubernetes' sample device plugin on demand and returns its path.
func (b *Box) EnsureSampleDevicePlugin(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.sampleDevicePlugin())
}

// EnsureDebianContainerd fetches the containerd and runc of Debian's packages on demand and returns the directory that
// stands for their root. They aren't installed, so that no service of theirs runs.
func (b *Box) EnsureDebianContainerd(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.debianContainerd())
}

// EnsureCRIO builds CRI-O on demand, and installs Debian's conmon.
func (b *Box) EnsureCRIO(ctx context.Context) error {
	if err := b.EnsurePackages(ctx, crioPackages); err != nil {
		return err
	}
	_, err := b.onDemand(ctx, b.crio())
	return err
}

// EnsureTestServer builds the server that probes are tried on, on demand, and returns its path.
func (b *Box) EnsureTestServer(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.testServer())
}

// EnsureScriptedCRI builds the scripted container runtime on demand and returns its path.
func (b *Box) EnsureScriptedCRI(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.scriptedCRI())
}

// EnsureMetricsServer builds metrics-server on demand and returns its path.
func (b *Box) EnsureMetricsServer(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.metricsServer())
}

// EnsureCSISanity builds csi-sanity, which judges CSI drivers, on demand and returns its path.
func (b *Box) EnsureCSISanity(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.csiSanity())
}

// EnsureCSIDriver builds the CSI driver of the tests on demand and returns its path.
func (b *Box) EnsureCSIDriver(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.csiDriver())
}

// EnsureKubeadm builds Kubernetes' kubeadm on demand and returns its path.
func (b *Box) EnsureKubeadm(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.kubeadm())
}

// EnsureEtcd builds etcd as it was released on demand and returns its path.
func (b *Box) EnsureEtcd(ctx context.Context) (string, error) {
	return b.onDemand(ctx, b.etcd())
}

// EnsureForTests makes what the suites of make test want on demand. A build takes the processors from the pods of the
// tests that run next to it, and the tests that want its program wait for it: it is better done before they begin.
func (b *Box) EnsureForTests(ctx context.Context) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.packages(ctx, testPackages); err != nil {
		return err
	}
	wanted := []build{
		b.testServer(), b.scriptedCRI(), b.csiDriver(), b.csiSanity(), b.agnhost(), b.metricsServer(), b.sampleDevicePlugin(),
	}
	for _, s := range []Sidecar{Attacher, Provisioner, Resizer} {
		wanted = append(wanted, b.sidecar(s))
	}
	return b.ensureAll(ctx, wanted)
}

// SuiteParts say what of Kubernetes' end-to-end suite is needed.
type SuiteParts int

// The parts of the suite.
const (
	SuiteImages SuiteParts = iota // the programs of its images, with the device plugin of the suite of a node
	WholeSuite                    // agnhost and nonewprivs, the suite (e2e.test), and ginkgo, which runs it
)

// EnsureSuite builds what is needed of Kubernetes' end-to-end suite, and installs the Debian packages that its images
// are made of.
func (b *Box) EnsureSuite(ctx context.Context, parts SuiteParts, packages []string) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := b.packages(ctx, packages); err != nil {
		return err
	}
	wanted := []build{b.nonewprivs(), b.agnhost()}
	if parts == WholeSuite {
		wanted = append(wanted, b.suite()...)
	} else {
		wanted = append(wanted, b.sampleDevicePlugin())
	}
	return b.ensureAll(ctx, wanted)
}

// EnsurePackages installs Debian packages that aren't there.
func (b *Box) EnsurePackages(ctx context.Context, packages []string) error {
	unlock, err := b.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return b.packages(ctx, packages)
}

// EnsurePrometheus installs Debian's Prometheus on demand and returns its path.
func (b *Box) EnsurePrometheus(ctx context.Context) (string, error) {
	return "/usr/bin/prometheus", b.EnsurePackages(ctx, []string{"prometheus"})
}

// onDemand makes the one program of what and returns its path.
func (b *Box) onDemand(ctx context.Context, what build) (string, error) {
	unlock, err := b.lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	return b.Path(what.name), b.ensure(ctx, what)
}

// Path is where the program of that name is.
func (b *Box) Path(name string) string { return filepath.Join(b.Bin, name) }

// CNIDir has the CNI plugins, from Debian's package.
func (b *Box) CNIDir() string { return "/usr/lib/cni" }

func (b *Box) progress(format string, args ...any) {
	fmt.Fprintf(b.out, "tools: "+format+"\n", args...)
}

// lock serializes builds of all processes: they share .bin.
func (b *Box) lock() (unlock func(), err error) {
	if err := os.MkdirAll(b.stampDir(), 0o755); err != nil {
		return nil, fmt.Errorf("lock tools: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(b.Bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock tools: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock tools: %w", err)
	}
	return func() { _ = file.Close() }, nil
}

func (b *Box) stampDir() string { return filepath.Join(b.Bin, ".stamps") }

// build is a group of programs made by one command.
type build struct {
	name     string   // for progress and the stamp
	stamp    string   // changes when the programs must be made again
	programs []string // what must exist in .bin
	dir      string   // where the command runs; empty is .bin
	env      []string
	command  []string
}

func (b *Box) ensureAll(ctx context.Context, wanted []build) error {
	for _, what := range wanted {
		if err := b.ensure(ctx, what); err != nil {
			return err
		}
	}
	return nil
}

func (b *Box) ensure(ctx context.Context, what build) error {
	stampFile := filepath.Join(b.stampDir(), what.name)
	if b.current(what, stampFile) {
		return nil
	}
	b.progress("building %s (%s)", what.name, strings.Join(what.programs, ", "))
	if err := b.exec(ctx, what); err != nil {
		return fmt.Errorf("build %s: %w", what.name, err)
	}
	if err := os.WriteFile(stampFile, []byte(what.stamp), 0o644); err != nil {
		return fmt.Errorf("build %s: %w", what.name, err)
	}
	b.progress("%s is ready", what.name)
	return nil
}

func (b *Box) current(what build, stampFile string) bool {
	stamp, err := os.ReadFile(stampFile)
	if err != nil || string(stamp) != what.stamp {
		return false
	}
	for _, program := range what.programs {
		if _, err := os.Stat(b.Path(program)); err != nil {
			return false
		}
	}
	return true
}

func (b *Box) exec(ctx context.Context, what build) error {
	cmd := exec.CommandContext(ctx, what.command[0], what.command[1:]...)
	cmd.Dir = what.dir
	if cmd.Dir == "" {
		cmd.Dir = b.Bin
	}
	cmd.Env = append(os.Environ(), what.env...)
	seen := &progress{name: what.name, out: b.out, told: time.Now()}
	cmd.Stdout, cmd.Stderr = seen, seen
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(what.command, " "), err, seen.unexpected())
	}
	return nil
}

// linkComponents makes the names that k8s-testbed acts by.
func (b *Box) linkComponents() error {
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager",
		"kubelet", "kubectl",
	} {
		if err := os.Symlink("k8s-testbed", b.Path(name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", name, err)
		}
	}
	return nil
}
