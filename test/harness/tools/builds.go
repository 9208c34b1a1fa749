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
// run (CNI plugins and what they call; the static busybox of the test image).
var debianPackages = []string{
	"gcc", "libc6-dev", "libseccomp-dev", "pkg-config",
	"containernetworking-plugins", "iptables", "iproute2", "busybox-static",
}

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
		what := build{command: args, env: []string{"DEBIAN_FRONTEND=noninteractive"}}
		if err := b.exec(ctx, what); err != nil {
			return fmt.Errorf("install Debian packages %s: %w", strings.Join(missing, " "), err)
		}
	}
	return nil
}

// builds lists what Ensure makes, quick ones first: a mistake shows early.
func (b *Box) builds() []build {
	return []build{b.pause(), b.testbed(), b.containerd(), b.runc(), b.controlPlane()}
}

func (b *Box) pause() build {
	source := b.harness("images", "pause", "pause.c")
	return build{
		name:     "pause",
		stamp:    hashFiles(source),
		programs: []string{"pause"},
		command:  []string{"gcc", "-static", "-Os", "-s", "-Wall", "-Werror", "-o", b.Path("pause"), source},
	}
}

// testbed is the command that cleans up after a test that was killed.
func (b *Box) testbed() build { return b.own("testbed", sources(b.harness())) }

// testServer is what probes are tried on.
func (b *Box) testServer() build {
	return b.own("testserver", append(sources(b.harness("cmd", "testserver")), b.harness("go.mod"), b.harness("go.sum")))
}

// own is a program of the harness itself.
func (b *Box) own(name string, from []string) build {
	return build{
		name:     name,
		stamp:    hashFiles(from...),
		programs: []string{name},
		dir:      b.harness(),
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-o", b.Path(name), "./cmd/" + name},
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

func (b *Box) install(name, version, cgo string, flags ...string) build {
	command := append([]string{"nice", "go", "install"}, flags...)
	return build{
		name:    name,
		stamp:   version + " " + strings.Join(flags, " "),
		env:     []string{cgo, "GOWORK=off", "GOBIN=" + b.Bin},
		command: command,
	}
}

func (b *Box) controlPlane() build {
	dir := filepath.Join(b.Root, "test", "controlplane")
	ldflags := "-s -w"
	// The version is what kubectl and the node object show.
	for _, pkg := range []string{"k8s.io/client-go/pkg/version", "k8s.io/component-base/version"} {
		ldflags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=36 -X %[1]s.gitTreeState=clean", pkg, KubernetesVersion)
	}
	return build{
		name:     "k8s-testbed",
		stamp:    hashFiles(sources(dir)...) + " " + ldflags,
		programs: []string{"k8s-testbed"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-ldflags", ldflags, "-o", b.Path("k8s-testbed"), "./cmd/k8s-testbed"},
	}
}

func (b *Box) agnhost() build {
	dir := filepath.Join(b.Root, "test", "controlplane")
	return build{
		name:     "agnhost",
		stamp:    KubernetesVersion,
		programs: []string{"agnhost"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-ldflags", "-s -w", "-o", b.Path("agnhost"), "k8s.io/kubernetes/test/images/agnhost"},
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
			"nice", "go", "build", "-ldflags", "-s -w", "-o", b.Path("scripted-cri"),
			"./critest/cmd/scripted-cri",
		},
	}
}

// metricsServer is what `kubectl top` asks, in a module of its own: it has other versions than the control plane.
func (b *Box) metricsServer() build {
	dir := filepath.Join(b.Root, "test", "metricsserver")
	return build{
		name:     "metrics-server",
		stamp:    hashFiles(sources(dir)...),
		programs: []string{"metrics-server"},
		dir:      dir,
		env:      []string{"CGO_ENABLED=0", "GOWORK=off"},
		command:  []string{"nice", "go", "build", "-ldflags", "-s -w", "-o", b.Path("metrics-server"), "sigs.k8s.io/metrics-server/cmd/metrics-server"},
	}
}

func (b *Box) harness(elem ...string) string {
	return filepath.Join(append([]string{b.Root, "test", "harness"}, elem...)...)
}

// sources lists the files of a module that its programs depend on.
func sources(dir string) []string {
	var files []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
	case ".mod", ".sum", ".c", ".toml", ".conflist", ".yaml":
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
