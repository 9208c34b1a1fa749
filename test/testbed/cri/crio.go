package cri

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

var (
	//go:embed crio.toml
	crioConfig string
	//go:embed runc.sh
	runcScript string
)

const (
	anySignature = `{"default": [{"type": "insecureAcceptAnything"}]}`
	// registriesTop has plain HTTP spoken with the registries of this machine, as containerd does by itself.
	registriesTop = `unqualified-search-registries = ["docker.io"]
[[registry]]
location = "127.0.0.1"
insecure = true
`
	// reloaded is what CRI-O logs after SIGHUP.
	reloaded = "Configuration reload completed"
)

// mirrored are the names of the registries that a mirror stands for. CRI-O has no name for all of them.
var mirrored = []string{"*.io", "*.dev", "*.com"}

// crio is CRI-O with Debian's conmon and the runc of .bin.
type crio struct {
	bed *bed.Bed
	box *tools.Box
}

func newCRIO(ctx context.Context, b *bed.Bed, box *tools.Box) (*crio, error) {
	if err := box.EnsureCRIO(ctx); err != nil {
		return nil, err
	}
	return &crio{bed: b, box: box}, nil
}

func (c *crio) path(name string) string { return c.bed.Path("crio", name) }

func (c *crio) files() map[string]string {
	return map[string]string{
		c.path("crio.conf"): crioConfig, c.path("runc.sh"): runcScript, c.path("policy.json"): anySignature,
		c.path("registries.conf"): registriesTop,
	}
}

func (c *crio) spec() proc.Spec {
	return proc.Spec{
		Name: "crio", Path: c.box.Path("crio"), Dir: c.bed.Logs(),
		Args: []string{
			"--config", c.path("crio.conf"), "--config-dir", "", "--registries-conf", c.path("registries.conf"),
			"--registries-conf-dir", c.bed.Path("registries"),
		},
		// The machine's own settings of its container storage aren't the bed's.
		Env: []string{"CONTAINERS_STORAGE_CONF=/dev/null"},
	}
}

func (c *crio) load(ctx context.Context, archive string, all []images.Image) error {
	args := []string{"--root", c.path("root"), "--runroot", c.path("run"), "--archive", archive}
	for _, img := range all {
		args = append(args, img.Ref)
	}
	if out, err := exec.CommandContext(ctx, c.box.Path("crio-load"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("load images into CRI-O's storage: %w: %s", err, out)
	}
	return nil
}

func (c *crio) useRegistry(addr string, mirror bool, process *proc.Process) error {
	names := []string{addr}
	if mirror {
		names = append(names, mirrored...)
	}
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n", name, addr)
	}
	if err := os.WriteFile(c.bed.Path("registries", addr+".conf"), []byte(text.String()), 0o644); err != nil {
		return err
	}
	if process == nil {
		return nil
	}
	return c.reload(process)
}

// reload has CRI-O read the files of registries again and waits until it has.
func (c *crio) reload(process *proc.Process) error {
	reloads := func() (int, error) {
		log, err := os.ReadFile(process.LogPath())
		return strings.Count(string(log), reloaded), err
	}
	before, err := reloads()
	if err != nil {
		return err
	}
	if err := process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		if now, err := reloads(); err != nil || now > before {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("CRI-O hasn't read its configuration again within %s", startTimeout)
		}
	}
}

// hasHugetlb reports whether the controller of huge pages is in use. With cgroup v1 each controller has its mount.
func hasHugetlb() bool {
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	_, v1 := os.Stat("/sys/fs/cgroup/hugetlb")
	return v1 == nil || v2 == nil
}
