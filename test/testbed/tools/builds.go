package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debianPackages are needed to build (a C compiler for runc's seccomp) or to
// run (CNI plugins and what they call; the static busybox of the test image; the message bus of tests of logind).
var debianPackages = []string{
	"gcc", "libc6-dev", "libseccomp-dev", "pkg-config",
	"containernetworking-plugins", "iptables", "iproute2", "busybox-static", "dbus-daemon",
}

// testPackages are installed by tests that need them, and before all suites by EnsureForTests.
var testPackages = []string{"prometheus", "jq"}

// crioPackages are what CRI-O runs containers with.
var crioPackages = []string{"conmon"}

// lockPatience has apt wait, in seconds, for another apt at work: a fresh machine may just be updating itself.
const lockPatience = "DPkg::Lock::Timeout=300"

func (b *Box) packages(ctx context.Context, wanted []string) error {
	var missing []string
	for _, name := range wanted {
		out, err := exec.CommandContext(ctx, "dpkg-query", "-W", "-f", "${Status}", name).Output()
		if err != nil || !strings.HasSuffix(string(out), " installed") {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	b.progress("installing Debian packages: %s", strings.Join(missing, " "))
	for _, args := range [][]string{
		{"apt-get", "update", "-q", "-o", lockPatience},
		append([]string{"apt-get", "install", "-q", "-y", "--no-install-recommends", "-o", lockPatience}, missing...),
	} {
		what := build{name: "Debian packages", command: args, env: []string{"DEBIAN_FRONTEND=noninteractive"}}
		if err := b.exec(ctx, what); err != nil {
			return fmt.Errorf("install Debian packages %s: %w", strings.Join(missing, " "), err)
		}
	}
	return nil
}

// builds lists what Ensure makes, quick ones first: a mistake shows early. The control plane takes as long as all else.
func (b *Box) builds(parts Parts) []build {
	list := []build{b.pause(), b.testbed(), b.runc(), b.containerd()}
	if parts == WithControlPlane {
		list = append(list, b.controlPlane())
	}
	return list
}

func (b *Box) pause() build {
	source := b.testbedDir("images", "pause", "pause.c")
	return build{
		name:     "pause",
		stamp:    hashFiles(source),
		programs: []string{"pause"},
		command:  []string{"gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", b.Path("pause"), source},
	}
}

// testbed is the command that cleans up after a test that was killed.
func (b *Box) testbed() build { return b.own("testbed", sources(b.testbedDir())) }

// testServer is what probes are tried on.
func (b *Box) testServer() build {
	return b.own("testserver", sources(b.testbedDir("cmd", "testserver")))
}

// own is a program of the test bed itself.
func (b *Box) own(name string, from []string) build {
	module := filepath.Join(b.Root, "test")
	return build{
		name:     name,
		stamp:    hashFiles(append(from, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))...),
		programs: []string{name},
		dir:      module,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-v", "-o", b.Path(name), "./testbed/cmd/" + name},
	}
}

func (b *Box) containerd() build {
	const module = "github.com/containerd/containerd/v2/cmd/"
	what := b.install("containerd", containerdVersion, "CGO_ENABLED=0", "-ldflags=-s -w")
	what.programs = []string{"containerd", "containerd-shim-runc-v2", "ctr"}
	for _, program := range what.programs {
		what.command = append(what.command, module+program+"@"+containerdVersion)
	}
	return what
}

// runc needs the seccomp tag: without it containers with the default profile
// are refused.
func (b *Box) runc() build {
	what := b.install("runc", runcVersion, "CGO_ENABLED=1", "-tags=seccomp", "-ldflags=-s -w")
	what.programs = []string{"runc"}
	what.command = append(what.command, "github.com/opencontainers/runc@"+runcVersion)
	return what
}

// debianContainerd is what a user of Debian 12 has: containerd 1.6 and runc 1.1.
func (b *Box) debianContainerd() build {
	const name = "debian-containerd"
	script := fmt.Sprintf("rm -rf %[1]s; mkdir %[1]s; cd %[1]s; apt-get update -q -o %[2]s; "+
		"apt-get download -q containerd runc; for package in *.deb; do dpkg -x $package .; done; rm *.deb",
		name, lockPatience)
	return build{
		name:     name,
		stamp:    "1",
		programs: []string{name + "/usr/bin/containerd", name + "/usr/bin/ctr", name + "/usr/sbin/runc"},
		command:  []string{"sh", "-e", "-c", script},
	}
}

// crio is CRI-O, its helper pinns, which is a program in C of the same module, and what loads images into its storage.
func (b *Box) crio() build {
	dir := b.testbedDir("programs", "crio")
	const tags = "seccomp containers_image_openpgp containers_image_ostree_stub exclude_graphdriver_btrfs"
	script := fmt.Sprintf("nice go build -v -tags %q -ldflags '-s -w' -o %[2]s github.com/cri-o/cri-o/cmd/crio "+
		"./cmd/crio-load; gcc -std=c99 -Os -s -static -o %[2]s/pinns "+
		"$(go list -m -f {{.Dir}} github.com/cri-o/cri-o)/pinns/src/*.c", tags, b.Bin)
	return build{
		name:     "crio",
		stamp:    hashFiles(sources(dir)...) + tags,
		programs: []string{"crio", "crio-load", "pinns"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=1", "GOWORK=off"},
		command:  []string{"sh", "-e", "-c", script},
	}
}

func (b *Box) install(name, version, cgo string, flags ...string) build {
	command := append([]string{"nice", "go", "install", "-v"}, flags...)
	return build{
		name:    name,
		stamp:   version + " " + strings.Join(flags, " "),
		env:     []string{cgo, "GOWORK=off", "GOBIN=" + b.Bin},
		command: command,
	}
}

func (b *Box) controlPlane() build {
	return b.ofKubernetes("k8s-testbed")
}

// kubeadm is Kubernetes' own. The control plane isn't built with it, nor it with the control plane.
func (b *Box) kubeadm() build { return b.ofKubernetes("kubeadm") }

// etcd is etcd as it was released, in a module of its own. The name etcd belongs to the control plane's.
func (b *Box) etcd() build {
	dir := b.testbedDir("programs", "etcd")
	return build{
		name:     "etcd-server",
		stamp:    hashFiles(sources(dir)...),
		programs: []string{"etcd-server"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-v", "-ldflags", "-s -w", "-o", b.Path("etcd-server"), "."},
	}
}

// ofKubernetes is a program of the module of Kubernetes.
func (b *Box) ofKubernetes(name string) build {
	dir := b.kubernetesDir()
	ldflags := "-s -w"
	// The version is what kubectl, kubeadm and the node object show.
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		ldflags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36 -X "+
			"%[1]s.gitTreeState=clean", pkg, KubernetesVersion)
	}
	return build{
		name:     name,
		stamp:    hashFiles(append(sources(filepath.Join(dir, "cmd", name)), b.kubernetesModule()...)...) + " " + ldflags,
		programs: []string{name},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command: []string{
			"nice", "go", "build", "-v", "-ldflags", ldflags, "-o", b.Path(name), "./cmd/" + name,
		},
	}
}

func (b *Box) agnhost() build { return b.ofImage("agnhost", "agnhost") }

// sampleDevicePlugin is a device plugin made of the kubelet's own library.
func (b *Box) sampleDevicePlugin() build {
	return b.ofImage("sampledeviceplugin", "sample-device-plugin")
}

// ofImage is the program of one of Kubernetes' test images.
func (b *Box) ofImage(name, image string) build {
	return build{
		name:     name,
		stamp:    KubernetesVersion,
		programs: []string{name},
		dir:      b.kubernetesDir(),
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command: []string{
			"nice", "go", "build", "-v", "-ldflags", "-s -w", "-o", b.Path(name), "k8s.io/kubernetes/test/images/" + image,
		},
	}
}

// scriptedCRI is a container runtime that starts no processes.
func (b *Box) scriptedCRI() build {
	dir := filepath.Join(b.Root, "cri")
	return build{
		name:     "scripted-cri",
		stamp:    hashFiles(sources(dir)...),
		programs: []string{"scripted-cri"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command: []string{
			"nice", "go", "build", "-v", "-ldflags", "-s -w", "-o", b.Path("scripted-cri"),
			"./critest/cmd/scripted-cri",
		},
	}
}

// csiDriver is the CSI driver of the tests.
func (b *Box) csiDriver() build {
	return b.own("csidriver", append(sources(b.testbedDir("cmd", "csidriver")),
		sources(filepath.Join(b.Root, "test", "csidriver"))...))
}

// metricsServer is what `kubectl top` asks.
func (b *Box) metricsServer() build {
	return b.released("metrics-server", "metricsserver", "sigs.k8s.io/metrics-server/cmd/metrics-server")
}

// csiSanity judges CSI drivers.
func (b *Box) csiSanity() build {
	return b.released("csi-sanity", "csi", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")
}

// released is a program of others, in one of the modules that only build such programs.
func (b *Box) released(name, module, path string) build {
	dir := b.testbedDir("programs", module)
	return build{
		name:     name,
		stamp:    hashFiles(sources(dir)...),
		programs: []string{name},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-v", "-ldflags", "-s -w", "-o", b.Path(name), path},
	}
}

// testbedDir is a path in the directory of the test bed's own code.
func (b *Box) testbedDir(elem ...string) string {
	return filepath.Join(append([]string{b.Root, "test", "testbed"}, elem...)...)
}

// kubernetesDir is the module with the programs of Kubernetes.
func (b *Box) kubernetesDir() string { return b.testbedDir("programs", "kubernetes") }

// kubernetesModule are the files that say in which versions they are built.
func (b *Box) kubernetesModule() []string {
	return []string{filepath.Join(b.kubernetesDir(), "go.mod"), filepath.Join(b.kubernetesDir(), "go.sum")}
}

// sources lists the files below a directory that its programs depend on. What is below programs has stamps of its own.
func sources(dir string) []string {
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && d.Name() == "programs" {
			return filepath.SkipDir
		}
		// What can't be read is for the build to complain about.
		if err == nil && !d.IsDir() && isSource(path) {
			files = append(files, path)
		}
		return nil
	})
	return files
}

func isSource(path string) bool {
	switch filepath.Ext(path) {
	case ".mod", ".sum", ".c", ".toml", ".conflist", ".yaml", ".sh":
		return true
	default:
		return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
	}
}

// hashFiles returns a hash over names and contents. A file that can't be read
// counts as empty: the build will say what is wrong with it.
func hashFiles(files ...string) string {
	sum := sha256.New()
	for _, name := range files {
		fmt.Fprintln(sum, name)
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		_, _ = io.Copy(sum, file)
		_ = file.Close()
	}
	return hex.EncodeToString(sum.Sum(nil))
}
