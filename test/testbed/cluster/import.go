package cluster

import (
	"context"
	"path/filepath"

	"kubelot.dev/test/testbed/images"
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
	return img, c.CRI.Import(ctx, img)
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
	return c.CRI.Import(ctx, img)
}

// E2EImages makes the images of Kubernetes' end-to-end suite, or reads them where all programs are given.
func (c *Cluster) E2EImages(ctx context.Context) ([]images.Image, error) {
	if c.Tools.Given {
		return images.Read(c.Tools.Path(images.SuiteArchive))
	}
	source, err := c.Tools.KubernetesSource(ctx)
	if err != nil {
		return nil, err
	}
	return images.E2EImages(images.E2E{
		Busybox: "/bin/busybox", Agnhost: c.Tools.Path("agnhost"), Nnp: c.Tools.Path("nonewprivs"),
		Pause: c.Tools.Path("pause"), Certs: filepath.Join(source, "test", "images", "agnhost", "porter"),
	})
}

// PushE2EImages puts the images of Kubernetes' end-to-end suite into the registry, which must run. They are pulled like
// any others when a pod asks for them. It returns them.
func (c *Cluster) PushE2EImages(ctx context.Context) ([]images.Image, error) {
	all, err := c.E2EImages(ctx)
	if err != nil {
		return nil, err
	}
	for _, img := range all {
		if _, err := c.Registry.Push(ctx, img); err != nil {
			return nil, err
		}
	}
	return all, nil
}
