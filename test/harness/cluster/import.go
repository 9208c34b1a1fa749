package cluster

import (
	"context"

	"kubelot.dev/test/harness/images"
)

// ImportAgnhost builds Kubernetes' test image, if that wasn't done before, and
// gives it to containerd.
func (c *Cluster) ImportAgnhost(ctx context.Context) (images.Image, error) {
	path, err := c.Tools.EnsureAgnhost(ctx)
	if err != nil {
		return images.Image{}, err
	}
	img, err := images.Agnhost(path, "/bin/busybox")
	if err != nil {
		return images.Image{}, err
	}
	return img, c.Containerd.Import(ctx, img)
}

// ImportTestServer builds the server that probes are tried on, if that wasn't done before, and gives it to containerd.
func (c *Cluster) ImportTestServer(ctx context.Context) error {
	path, err := c.Tools.EnsureTestServer(ctx)
	if err != nil {
		return err
	}
	img, err := images.TestServer(path, "/bin/busybox")
	if err != nil {
		return err
	}
	return c.Containerd.Import(ctx, img)
}
