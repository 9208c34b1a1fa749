// Package images builds the container images of the tests from static
// programs, as no registry can be reached from where the tests run.
//
// Reads: .bin/pause, .bin/agnhost, .bin/testserver, /bin/busybox. Writes: nothing. Owns: nothing.
//
// Guarantees: the same input gives the same digest.
package images

import (
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// References by which the images are imported. The pause and agnhost versions are those of Kubernetes
// own tests of 1.36 ask for.
const (
	PauseRef   = "registry.k8s.io/pause:3.10.2"
	BusyboxRef = "docker.io/library/busybox:1.36"
	AgnhostRef = "registry.k8s.io/e2e-test-images/agnhost:2.63.0"

	// TestServerRef is an image of the test bed's own.
	TestServerRef = "kubelot.dev/testserver:1"
)

// SuiteArchive is the file of Kubernetes' end-to-end suite's images, among the programs of a machine that can't make
// them.
const SuiteArchive = "suite-images.tar"

// Image is an image with the reference it goes by.
type Image struct {
	Ref   string
	Image v1.Image
}

// Pause makes the sandbox image of the pause program at path.
func Pause(path string) (Image, error) {
	layer := newLayer()
	layer.copy("/pause", path, 0o755)
	return layer.image(PauseRef, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
}

// Agnhost makes the image of Kubernetes' test program at path, with a shell.
func Agnhost(path, busybox string) (Image, error) {
	layer := userland(busybox)
	layer.copy("/agnhost", path, 0o755)
	return layer.image(AgnhostRef, v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: searchPath})
}

// TestServer makes the image of the program at path that probes are tried on, with a shell.
func TestServer(path, busybox string) (Image, error) {
	layer := userland(busybox)
	layer.copy("/testserver", path, 0o755)
	return layer.image(TestServerRef, v1.Config{Cmd: []string{"/testserver"}, Env: searchPath})
}

// Busybox makes a shell image of the static busybox at path, with every
// applet, users root, nobody and app (1000), and a world-writable /tmp.
func Busybox(path string) (Image, error) {
	return userland(path).image(BusyboxRef, v1.Config{Cmd: []string{"sh"}, Env: searchPath})
}

// Variant returns the image under another reference and with a label that
// gives it another digest, for tests that pull, count and collect images.
func Variant(img Image, ref, label string) (Image, error) {
	config, err := img.Image.ConfigFile()
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	changed := config.DeepCopy()
	changed.Config.Labels = map[string]string{"kubelot.dev/variant": label}
	made, err := mutate.ConfigFile(img.Image, changed)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return Image{Ref: ref, Image: made}, nil
}

// Archive writes the images into a file, as one docker-archive, which ctr can import.
func Archive(path string, all ...Image) error {
	byTag := map[name.Tag]v1.Image{}
	for _, img := range all {
		tag, err := name.NewTag(img.Ref)
		if err != nil {
			return fmt.Errorf("image reference %q: %w", img.Ref, err)
		}
		byTag[tag] = img.Image
	}
	if err := tarball.MultiWriteToFile(path, byTag); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	return nil
}

// Read opens the images of a file that Archive wrote, which has to stay.
func Read(path string) ([]Image, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(path) })
	if err != nil {
		return nil, fmt.Errorf("read images: %w", err)
	}
	var all []Image
	for _, described := range manifest {
		for _, ref := range described.RepoTags {
			tag, err := name.NewTag(ref)
			if err != nil {
				return nil, fmt.Errorf("read images: %q in %s: %w", ref, path, err)
			}
			img, err := tarball.ImageFromPath(path, &tag)
			if err != nil {
				return nil, fmt.Errorf("read images: %s in %s: %w", ref, path, err)
			}
			all = append(all, Image{Ref: ref, Image: img})
		}
	}
	return all, nil
}

func (l *layer) image(ref string, config v1.Config) (Image, error) {
	files, err := l.finish()
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return assemble(ref, files, config)
}

// assemble makes an image of one layer.
func assemble(ref string, files v1.Layer, config v1.Config) (Image, error) {
	img, err := mutate.AppendLayers(empty.Image, files)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", architecture
	file.Config = config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return Image{Ref: ref, Image: img}, nil
}

// Padded returns the image under another reference with a layer of random bytes, for tests that fill a disk with
// images.
func Padded(img Image, ref string, size int64) (Image, error) {
	layer, err := random.Layer(size, types.DockerLayer)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	made, err := mutate.AppendLayers(img.Image, layer)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return Image{Ref: ref, Image: made}, nil
}
