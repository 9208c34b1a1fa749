// Command crio-load gives CRI-O's storage the images of a docker-archive, as podman load does, by the names that follow
// the archive on the command line. CRI-O may be running.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"go.podman.io/image/v5/copy"
	"go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/signature"
	imagestorage "go.podman.io/image/v5/storage"
	"go.podman.io/storage"
	"go.podman.io/storage/pkg/reexec"
)

func main() {
	// The storage unpacks a layer in a process of its own, which is this program again.
	if reexec.Init() {
		return
	}
	if err := load(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "crio-load:", err)
		os.Exit(1)
	}
}

func load(ctx context.Context) error {
	options := storage.StoreOptions{GraphDriverName: "overlay"}
	flag.StringVar(&options.GraphRoot, "root", "", "CRI-O's root")
	flag.StringVar(&options.RunRoot, "runroot", "", "CRI-O's runroot")
	path := flag.String("archive", "", "the docker-archive")
	flag.Parse()
	store, err := storage.GetStore(options)
	if err != nil {
		return fmt.Errorf("open the storage: %w", err)
	}
	anything, err := signature.NewPolicyContext(&signature.Policy{
		Default: []signature.PolicyRequirement{signature.NewPRInsecureAcceptAnything()},
	})
	if err != nil {
		return fmt.Errorf("accept unsigned images: %w", err)
	}
	for _, name := range flag.Args() {
		if err := loadOne(ctx, anything, store, *path, name); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func loadOne(ctx context.Context, policy *signature.PolicyContext, store storage.Store, path, name string) error {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return err
	}
	tagged, ok := named.(reference.NamedTagged)
	if !ok {
		return errors.New("it has no tag")
	}
	from, err := archive.NewReference(path, tagged)
	if err != nil {
		return err
	}
	to, err := imagestorage.Transport.NewStoreReference(store, tagged, "")
	if err != nil {
		return err
	}
	_, err = copy.Image(ctx, policy, to, from, nil)
	return err
}
