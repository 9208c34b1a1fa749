package images

import (
	"fmt"
	"maps"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// Named makes images of one static program that acts by the name it is called by: for each name, the image with the
// reference. Whoever has unpacked one of them has the program of all.
func Named(path string, references map[string]string) ([]Image, error) {
	base := newLayer()
	base.copy("/program", path, 0o755)
	program, err := base.finish()
	if err != nil {
		return nil, fmt.Errorf("images of %s: %w", path, err)
	}
	var all []Image
	for _, name := range slices.Sorted(maps.Keys(references)) {
		img, err := named(program, name, references[name])
		if err != nil {
			return nil, err
		}
		all = append(all, img)
	}
	return all, nil
}

func named(program v1.Layer, name, ref string) (Image, error) {
	img, err := assemble(ref, program, v1.Config{Cmd: []string{name}, Env: searchPath})
	if err != nil {
		return Image{}, err
	}
	l := newLayer()
	l.dir("/bin", 0o755)
	l.dir("/tmp", 0o1777)
	l.link("/bin/"+name, "/program")
	link, err := l.finish()
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	if img.Image, err = mutate.AppendLayers(img.Image, link); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", ref, err)
	}
	return img, nil
}
