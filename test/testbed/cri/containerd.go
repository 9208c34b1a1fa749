package cri

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

var (
	//go:embed containerd.toml
	containerdConfig string
	//go:embed containerd-1.6.toml
	debianConfig string
)

// containerd is a containerd with its client, its shim and a runc. The template of its configuration fits its version.
type containerd struct {
	Runc string

	bed             *bed.Bed
	containerd, ctr string
	shims           string // the directory of the shim
	config          string
}

func newContainerd(b *bed.Bed, box *tools.Box) *containerd {
	return &containerd{
		bed: b, containerd: box.Path("containerd"), ctr: box.Path("ctr"), Runc: box.Path("runc"), shims: box.Bin,
		config: containerdConfig,
	}
}

func newDebianContainerd(ctx context.Context, b *bed.Bed, box *tools.Box) (*containerd, error) {
	root, err := box.EnsureDebianContainerd(ctx)
	if err != nil {
		return nil, err
	}
	programs := filepath.Join(root, "usr", "bin")
	return &containerd{
		bed: b, containerd: filepath.Join(programs, "containerd"), ctr: filepath.Join(programs, "ctr"),
		Runc: filepath.Join(root, "usr", "sbin", "runc"), shims: programs, config: debianConfig,
	}, nil
}

func (c *containerd) files() map[string]string {
	return map[string]string{c.configFile(): c.config}
}

func (c *containerd) configFile() string { return c.bed.Path("containerd", "config.toml") }

func (c *containerd) spec() proc.Spec {
	return proc.Spec{
		Name: "containerd", Path: c.containerd, Dir: c.bed.Logs(), Args: []string{"--config", c.configFile()},
		// containerd finds its shim on the PATH.
		Env: []string{"PATH=" + c.shims + ":" + os.Getenv("PATH")},
	}
}

// load runs containerd's own client in the namespace of the CRI.
func (c *containerd) load(ctx context.Context, archive string, _ []images.Image) error {
	args := []string{"--address", c.bed.CRISocket(), "--namespace", "k8s.io", "images", "import", archive}
	if out, err := exec.CommandContext(ctx, c.ctr, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// RegistryHosts is containerd's hosts.toml that has it speak plain HTTP with the registry at addr.
func RegistryHosts(addr string) string {
	return fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
		addr)
}

func (c *containerd) useRegistry(addr string, mirror bool, _ *proc.Process) error {
	hosts := RegistryHosts(addr)
	names := []string{addr}
	if mirror {
		names = append(names, "_default")
	}
	for _, name := range names {
		dir := c.bed.Path("registries", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644); err != nil {
			return err
		}
	}
	return nil
}
