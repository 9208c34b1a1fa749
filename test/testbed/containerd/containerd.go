// Package containerd runs a containerd of a test bed's own: root, state,
// socket, CNI network and runc state are in the bed, so that it can't meet
// another containerd of the machine.
//
// Reads: .bin, the bed. Writes: <bed>/containerd, <bed>/certs.d, <bed>/cni.
// Owns: the containerd process; its shims and containers until the bed is cleared.
//
// Guarantees: Start returns when the CRI answers, the network is ready and the
// sandbox image is there. Stop leaves shims and containers running, as a
// restart of containerd does; bed.Clear removes them.
package containerd

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/tools"
)

// startTimeout covers a cold machine that does something else too.
const startTimeout = 3 * time.Minute

//go:embed cni.conflist
var cniTemplate string

// Containerd is a running containerd.
type Containerd struct {
	Socket string

	bed     *bed.Bed
	box     *tools.Box
	release release
	process *proc.Process
	conn    *grpc.ClientConn
}

// Start configures and runs containerd and imports the images.
func Start(ctx context.Context, b *bed.Bed, box *tools.Box, all ...images.Image) (*Containerd, error) {
	r, err := chosen(ctx, box)
	if err != nil {
		return nil, err
	}
	c := &Containerd{Socket: b.ContainerdSocket(), bed: b, box: box, release: r}
	if err := c.configure(); err != nil {
		return nil, err
	}
	if err := c.Launch(ctx); err != nil {
		return nil, err
	}
	if err := c.Import(ctx, all...); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Containerd) configure() error {
	files := map[string]string{
		c.path("config.toml"):                    c.release.config,
		c.bed.Path("cni", "10-testbed.conflist"): cniTemplate,
	}
	for path, text := range files {
		var out bytes.Buffer
		if err := template.Must(template.New("").Parse(text)).Execute(&out, c.settings()); err != nil {
			return fmt.Errorf("configure containerd: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("configure containerd: %w", err)
		}
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			return fmt.Errorf("configure containerd: %w", err)
		}
	}
	return os.MkdirAll(c.bed.Path("certs.d"), 0o755)
}

func (c *Containerd) settings() map[string]any {
	return map[string]any{
		"Root": c.path("root"), "State": c.path("state"), "Socket": c.Socket,
		"SandboxImage": images.PauseRef, "RegistryConfig": c.bed.Path("certs.d"),
		"RestrictOOMScore": !hasSysResource(),
		"CNIBin":           c.box.CNIDir(), "CNIConf": c.bed.Path("cni"),
		"Runc": c.release.runc, "RuncRoot": c.path("runc"), "Opt": c.path("opt"),
		"Network": c.bed.Network(), "Bridge": c.bed.Bridge, "IPAM": c.path("ipam"),
		"Subnet": c.bed.Subnet, "Gateway": c.bed.Gateway,
	}
}

// Launch runs containerd, for the first time or after Stop or Kill.
func (c *Containerd) Launch(ctx context.Context) error {
	process, err := proc.Start(proc.Spec{
		Name: "containerd", Path: c.release.containerd, Dir: c.bed.Logs(),
		Args: []string{"--config", c.path("config.toml")},
		// containerd finds its shim on the PATH.
		Env: []string{"PATH=" + c.release.shims + ":" + os.Getenv("PATH")},
	})
	if err != nil {
		return err
	}
	c.process = process
	if err := c.connect(); err != nil {
		c.Stop()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	if err := process.WaitReady(ctx, c.ready); err != nil {
		c.Stop()
		return err
	}
	return nil
}

// Upgrade has the release of .bin take the place of the one that runs, as an upgrade of its package does: containers
// and their shims go on, and so do the files.
func (c *Containerd) Upgrade(ctx context.Context) error {
	c.Stop()
	c.release = current(c.box)
	if err := c.configure(); err != nil {
		return err
	}
	return c.Launch(ctx)
}

// Attach connects to a containerd that runs already. It can't be started or ended, or be given images.
func Attach(socket string) (*Containerd, error) {
	c := &Containerd{Socket: socket}
	return c, c.connect()
}

func (c *Containerd) connect() (err error) {
	c.conn, err = grpc.NewClient("unix://"+c.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to containerd: %w", err)
	}
	return nil
}

// ready asks with a fresh dial each time: gRPC's own back-off would wait a
// second after the first refused connection.
func (c *Containerd) ready(ctx context.Context) error {
	c.conn.ResetConnectBackoff()
	status, err := c.Runtime().Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("CRI status: %w", err)
	}
	for _, condition := range status.GetStatus().GetConditions() {
		// containerd adds conditions of its own, such as one about deprecations.
		required := condition.GetType() == runtimeapi.RuntimeReady || condition.GetType() == runtimeapi.NetworkReady
		if required && !condition.GetStatus() {
			return fmt.Errorf("CRI condition %s: %s", condition.GetType(), condition.GetMessage())
		}
	}
	return nil
}

// Runtime is a CRI client of this containerd.
func (c *Containerd) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(c.conn)
}

// Images is a CRI image client of this containerd.
func (c *Containerd) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(c.conn)
}

// PID of the containerd process.
func (c *Containerd) PID() int { return c.process.PID() }

// Stop ends containerd, not the containers.
func (c *Containerd) Stop() {
	c.disconnect()
	c.process.Stop(time.Minute)
}

// Kill ends containerd with SIGKILL, not the containers.
func (c *Containerd) Kill() {
	c.disconnect()
	c.process.Kill()
}

func (c *Containerd) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
}

// Import loads the images and waits until the CRI knows them.
func (c *Containerd) Import(ctx context.Context, all ...images.Image) error {
	if len(all) == 0 {
		return nil
	}
	archive := c.path("import.tar")
	if err := images.Archive(archive, all...); err != nil {
		return err
	}
	defer func() { _ = os.Remove(archive) }()
	if err := c.ctr(ctx, "images", "import", archive); err != nil {
		return err
	}
	for _, img := range all {
		if err := c.awaitImage(ctx, img.Ref); err != nil {
			return err
		}
	}
	return nil
}

func (c *Containerd) awaitImage(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	return c.process.WaitReady(ctx, func(ctx context.Context) error {
		answer, err := c.Images().ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("image %s: %w", ref, err)
		}
		if answer.GetImage() == nil {
			return errors.New("imported image " + ref + " is not in the CRI's list")
		}
		return nil
	})
}

// UseRegistry makes containerd speak plain HTTP with the registry at addr. As
// a mirror it is asked for the images of every other registry too, so that
// images called docker.io/... can be pulled without a network.
func (c *Containerd) UseRegistry(addr string, mirror bool) error {
	hosts := fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\n  capabilities = [\"pull\", \"resolve\"]\n",
		addr)
	names := []string{addr}
	if mirror {
		names = append(names, "_default")
	}
	for _, name := range names {
		dir := c.bed.Path("certs.d", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("use registry %s: %w", addr, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o644); err != nil {
			return fmt.Errorf("use registry %s: %w", addr, err)
		}
	}
	return nil
}

func (c *Containerd) path(elem ...string) string {
	return c.bed.Path(append([]string{"containerd"}, elem...)...)
}
