// Package cluster puts a test bed together: a container runtime or the scripted one, and on
// demand a control plane and a registry, in one directory.
//
// Reads: .bin. Writes and owns: the bed in Options.Dir.
//
// Guarantees: Start begins with an empty bed, whatever a previous run left;
// Stop leaves nothing behind; if this process is killed, a cleaner that
// outlives it does the same.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/controlplane"
	"kubelot.dev/test/testbed/cri"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/proc"
	"kubelot.dev/test/testbed/registry"
	"kubelot.dev/test/testbed/scripted"
	"kubelot.dev/test/testbed/tools"
)

// Options say what a cluster consists of.
type Options struct {
	Dir          string    // empty: a temporary directory, removed by Stop
	Out          io.Writer // progress of builds
	ControlPlane bool
	Registry     bool // loopback registry, also the mirror of all others
	Images       []images.Image
	// Remote leaves the container runtime out: the node is another machine.
	Remote bool
	// Proxied has the API server reach nodes and pods by the proxy that listens at ControlPlane.ProxySocket.
	Proxied bool
	// Scripted runs the scripted container runtime, which starts no processes, instead of a real one.
	Scripted bool
}

// Cluster is a running test bed.
type Cluster struct {
	Bed          *bed.Bed
	Tools        *tools.Box
	CRI          *cri.Runtime               // nil with the scripted runtime and a remote one
	Scripted     *scripted.Runtime          // nil unless asked for
	ControlPlane *controlplane.ControlPlane // nil unless asked for
	Registry     *registry.Registry         // nil unless asked for
	Busybox      images.Image

	temporary bool
	cleaner   *proc.Process
	leash     *os.File // the cleaner begins when its other end closes
}

// Start builds the tools if necessary and starts what opts ask for.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	parts := tools.RuntimeOnly
	if opts.ControlPlane {
		parts = tools.WithControlPlane
	}
	box, err := tools.Ensure(ctx, opts.Out, parts)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Tools: box}
	dir := opts.Dir
	if dir == "" {
		// Short: a unix socket's path has 107 bytes at most.
		if dir, err = os.MkdirTemp("", "kt"); err != nil {
			return nil, fmt.Errorf("start test bed: %w", err)
		}
		// Root in a pod's user namespace is another user outside and must get through to its files.
		if err := os.Chmod(dir, 0o755); err != nil {
			return nil, fmt.Errorf("start test bed: %w", err)
		}
		c.temporary = true
	}
	if c.Bed, err = bed.Open(dir); err != nil {
		return nil, err
	}
	if err := c.start(ctx, opts); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, opts Options) error {
	if err := c.Bed.Reset(); err != nil {
		return err
	}
	if err := c.startCleaner(); err != nil {
		return err
	}
	if err := c.Bed.Setup(); err != nil {
		return err
	}
	if opts.Registry {
		var err error
		if c.Registry, err = registry.Start(); err != nil {
			return err
		}
	}
	// Both take seconds of waiting; a failure of one ends the other's start.
	group, ctx := errgroup.WithContext(ctx)
	if !opts.Remote {
		group.Go(func() (err error) {
			if opts.Scripted {
				c.Scripted, err = scripted.Start(ctx, c.Bed, c.Tools)
				return err
			}
			return c.startRuntime(ctx, opts.Images)
		})
	}
	if opts.ControlPlane {
		group.Go(func() (err error) {
			c.ControlPlane, err = controlplane.Start(ctx, c.Bed, c.Tools, opts.Proxied)
			return err
		})
	}
	return group.Wait()
}

func (c *Cluster) startRuntime(ctx context.Context, extra []images.Image) error {
	pause, err := images.Pause(c.Tools.Path("pause"))
	if err != nil {
		return err
	}
	if c.Busybox, err = images.Busybox("/bin/busybox"); err != nil {
		return err
	}
	all := append([]images.Image{pause, c.Busybox}, extra...)
	if c.CRI, err = cri.Start(ctx, c.Bed, c.Tools, all...); err != nil {
		return err
	}
	if c.Registry != nil {
		return c.CRI.UseRegistry(c.Registry.Addr, true)
	}
	return nil
}

// startCleaner runs a process that waits for the end of this one, however it
// comes, and then cleans the bed: the kernel kills the programs, but not the
// containers.
func (c *Cluster) startCleaner() error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start cleaner: %w", err)
	}
	defer read.Close()
	args := []string{"reap", "--dir", c.Bed.Dir}
	if c.temporary {
		args = append(args, "--remove")
	}
	c.cleaner, err = proc.Start(proc.Spec{
		Name: "cleaner", Path: c.Tools.Path("testbed"), Args: args,
		Dir: c.Bed.Path("cleaner"), Stdin: read, Survive: true,
	})
	if err != nil {
		_ = write.Close()
		return err
	}
	c.leash = write
	return nil
}

// Stop ends everything and removes it. In a directory given by the caller the
// logs stay, in <dir>/logs.
func (c *Cluster) Stop() error {
	if c.ControlPlane != nil {
		c.ControlPlane.Stop()
	}
	if c.CRI != nil {
		c.CRI.Kill()
	}
	if c.Scripted != nil {
		c.Scripted.Kill()
	}
	if c.Registry != nil {
		c.Registry.Close()
	}
	err := c.Bed.Reset()
	if c.cleaner != nil {
		c.cleaner.Kill()
		_ = c.leash.Close()
	}
	c.Bed.Close()
	if err == nil && c.temporary {
		return errors.Join(bed.Clean(c.Bed.Dir), os.Remove(c.Bed.Dir))
	}
	return err
}
