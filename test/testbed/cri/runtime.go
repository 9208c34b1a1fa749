// Package cri runs a container runtime of a test bed's own: root, state, socket, CNI network and the state of runc
// are in the bed, so that it can't meet another runtime of the machine. RuntimeEnv says which one.
//
// Reads: .bin, the bed. Writes: <bed>/containerd or <bed>/crio, <bed>/registries, <bed>/cni.
// Owns: the runtime's process; its shims or monitors and containers until the bed is cleared.
//
// Guarantees: Start returns when the CRI answers, the network is ready and the sandbox image is there. Stop leaves
// containers running, as a restart of the runtime does; bed.Clear removes them.
package cri

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

// Runtime is a running container runtime.
type Runtime struct {
	Socket string

	bed     *bed.Bed
	box     *tools.Box
	product product
	process *proc.Process
	conn    *grpc.ClientConn
}

// product is what differs from runtime to runtime.
type product interface {
	// files are the templates of its configuration, by path.
	files() map[string]string
	// spec is its command.
	spec() proc.Spec
	// load gives a running one the images of an archive.
	load(ctx context.Context, archive string, all []images.Image) error
	// useRegistry is UseRegistry. The process is nil before the first Launch.
	useRegistry(addr string, mirror bool, process *proc.Process) error
}

// Start configures and runs the runtime and imports the images.
func Start(ctx context.Context, b *bed.Bed, box *tools.Box, all ...images.Image) (*Runtime, error) {
	p, err := chosen(ctx, b, box)
	if err != nil {
		return nil, err
	}
	r := &Runtime{Socket: b.CRISocket(), bed: b, box: box, product: p}
	if err := r.configure(); err != nil {
		return nil, err
	}
	if err := r.Launch(ctx); err != nil {
		return nil, err
	}
	if err := r.Import(ctx, all...); err != nil {
		r.Stop()
		return nil, err
	}
	return r, nil
}

func (r *Runtime) configure() error {
	files := r.product.files()
	files[r.bed.Path("cni", "10-testbed.conflist")] = cniTemplate
	for path, text := range files {
		var out bytes.Buffer
		if err := template.Must(template.New("").Parse(text)).Execute(&out, r.settings()); err != nil {
			return fmt.Errorf("configure the container runtime: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("configure the container runtime: %w", err)
		}
		// Some are scripts.
		if err := os.WriteFile(path, out.Bytes(), 0o755); err != nil {
			return fmt.Errorf("configure the container runtime: %w", err)
		}
	}
	return os.MkdirAll(r.bed.Path("registries"), 0o755)
}

func (r *Runtime) settings() map[string]any {
	return map[string]any{
		"Product": r.product, "Bed": r.bed, "Socket": r.Socket, "SandboxImage": images.PauseRef,
		"SysResource": hasSysResource(), "Hugetlb": hasHugetlb(), "CNIBin": r.box.CNIDir(), "Bin": r.box.Bin,
	}
}

// Launch runs the runtime, for the first time or after Stop or Kill.
func (r *Runtime) Launch(ctx context.Context) error {
	process, err := proc.Start(r.product.spec())
	if err != nil {
		return err
	}
	r.process = process
	if err := r.connect(); err != nil {
		r.Stop()
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	if err := process.WaitReady(ctx, r.ready); err != nil {
		r.Stop()
		return err
	}
	return nil
}

// Upgrade has the containerd of .bin take the place of the runtime, an older containerd, as an upgrade of its package
// does: containers and their shims go on, and so do the files.
func (r *Runtime) Upgrade(ctx context.Context) error {
	r.Stop()
	r.product = newContainerd(r.bed, r.box)
	if err := r.configure(); err != nil {
		return err
	}
	return r.Launch(ctx)
}

// Attach connects to a runtime that runs already. It can't be started or ended, or be given images.
func Attach(socket string) (*Runtime, error) {
	r := &Runtime{Socket: socket}
	return r, r.connect()
}

func (r *Runtime) connect() (err error) {
	r.conn, err = grpc.NewClient("unix://"+r.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the container runtime: %w", err)
	}
	return nil
}

// ready asks with a fresh dial each time: gRPC's own back-off would wait a
// second after the first refused connection.
func (r *Runtime) ready(ctx context.Context) error {
	r.conn.ResetConnectBackoff()
	status, err := r.Runtime().Status(ctx, &runtimeapi.StatusRequest{})
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

// Runtime is a client of its runtime service.
func (r *Runtime) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(r.conn)
}

// Images is a client of its image service.
func (r *Runtime) Images() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(r.conn)
}

// PID of the runtime's process.
func (r *Runtime) PID() int { return r.process.PID() }

// Stop ends the runtime, not the containers.
func (r *Runtime) Stop() {
	r.disconnect()
	r.process.Stop(time.Minute)
}

// Kill ends the runtime with SIGKILL, not the containers.
func (r *Runtime) Kill() {
	r.disconnect()
	r.process.Kill()
}

func (r *Runtime) disconnect() {
	if r.conn != nil {
		_ = r.conn.Close()
	}
}

// Import loads the images and waits until the CRI knows them.
func (r *Runtime) Import(ctx context.Context, all ...images.Image) error {
	if len(all) == 0 {
		return nil
	}
	archive := r.bed.Path("import.tar")
	if err := images.Archive(archive, all...); err != nil {
		return err
	}
	defer func() { _ = os.Remove(archive) }()
	if err := r.product.load(ctx, archive, all); err != nil {
		return err
	}
	for _, img := range all {
		if err := r.awaitImage(ctx, img.Ref); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runtime) awaitImage(ctx context.Context, ref string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("waited %v", startTimeout))
	defer cancel()
	return r.process.WaitReady(ctx, func(ctx context.Context) error {
		answer, err := r.Images().ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
		if err != nil {
			return fmt.Errorf("image %s: %w", ref, err)
		}
		if answer.GetImage() == nil {
			return errors.New("imported image " + ref + " is not in the CRI's list")
		}
		return nil
	})
}

// UseRegistry makes the runtime speak plain HTTP with the registry at addr. As a mirror it is asked for the images of
// other registries too, so that images called docker.io/... can be pulled without a network.
func (r *Runtime) UseRegistry(addr string, mirror bool) error {
	if err := r.product.useRegistry(addr, mirror, r.process); err != nil {
		return fmt.Errorf("use registry %s: %w", addr, err)
	}
	return nil
}
