package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/containerd"
	"kubelot.dev/cri"
)

// pinPatience is how long containerd may take to say in CRI what was changed in its own API; it takes milliseconds.
const pinPatience = 5 * time.Second

// pinning is an image that is pinned, or no longer.
type pinning struct {
	Image string `json:"image"`
	ID    string `json:"id"`
	// Names are the tags and digests that the image has.
	Names  []string `json:"names"`
	Pinned bool     `json:"pinned"`
}

func imagePin(stdout *os.File) *cobra.Command {
	return pinCommand(stdout, true, &cobra.Command{
		Use:   "pin IMAGE...",
		Short: "Keep images from garbage collection.",
		Long: `Pins images that the node has: neither kubelot-gc nor others who heed CRI's pins remove them, whether or not a
container uses them, and also when the disk is full. IMAGE is a name, a digest or an ID.

CRI has no call for it, so that this works with containerd (1.7 or newer): the image gets the label
io.cri-containerd.pinned=pinned, which containerd keeps over restarts and reports in CRI. The pin belongs to this
image: what is pulled later under the same tag isn't pinned. With CRI-O, list the image in pinned_images of
/etc/crio/crio.conf.d and reload CRI-O.

Exit codes: 0 if the runtime says that all images are pinned, 1 if not.`,
		Example: `  kubelot image pin registry.example/app:1
  kubelot image ls -o json | jq '.[] | select(.pinned) | .names[0]'`,
	})
}

func imageUnpin(stdout *os.File) *cobra.Command {
	return pinCommand(stdout, false, &cobra.Command{
		Use:   "unpin IMAGE...",
		Short: "Let images be collected again.",
		Long: `Takes pins away that kubelot image pin has set. An image that no container uses may then be collected:
kubelot gc --dry-run --all says when.

Exit codes: 0 if the runtime says that no image is pinned any more, 1 if not.`,
		Example: "  kubelot image unpin registry.example/app:1",
	})
}

func pinCommand(stdout *os.File, on bool, c *cobra.Command) *cobra.Command {
	var at imageFlags
	c.Args = cobra.MinimumNArgs(1)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := at.check("text"); err != nil {
			return err
		}
		return at.withContainerd(c.Context(), "pin images", func(client *cri.Client, own *containerd.Client) error {
			var all []pinning
			for _, image := range args {
				p, err := pin(c.Context(), client, own, image, on)
				if err != nil {
					return err
				}
				all = append(all, p)
				if at.output == "text" {
					if err := say(stdout, image+": "+pinText(on)+" ("+p.ID+")"); err != nil {
						return err
					}
				}
			}
			if at.output == "json" {
				return writeJSON(stdout, all)
			}
			return nil
		})
	}
	at.register(c, "text")
	return c
}

func pinText(on bool) string {
	if on {
		return "pinned"
	}
	return "no longer pinned"
}

// withContainerd calls f with both clients of the node's runtime. It refuses any runtime but containerd.
func (f *runtimeFlags) withContainerd(ctx context.Context, what string,
	do func(*cri.Client, *containerd.Client) error,
) error {
	runtime, images, err := f.endpoints()
	if err != nil {
		return err
	}
	client, err := cri.Dial(runtime, cri.Options{Timeout: busPatience, ImageEndpoint: images})
	if err != nil {
		return err
	}
	defer client.Close()
	version, err := client.Version(ctx)
	if err != nil {
		return err
	}
	if err := onlyContainerd(version.GetRuntimeName(), what); err != nil {
		return err
	}
	if images == "" {
		images = runtime
	}
	own, err := containerd.Dial(images)
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }() // what was asked has been answered
	return do(client, own)
}

// onlyContainerd refuses other runtimes, and says what does the same with them.
func onlyContainerd(runtime, what string) error {
	instead := "use the runtime's own tools"
	switch {
	case runtime == containerd.RuntimeName:
		return nil
	case runtime == "cri-o" && what == "import images":
		instead = "use skopeo copy docker-archive:FILE containers-storage:NAME, or podman load, which share its storage"
	case runtime == "cri-o":
		instead = "list them in pinned_images in a file in /etc/crio/crio.conf.d, and run systemctl reload crio"
	}
	return fmt.Errorf("CRI has no call to %s, and the runtime is %s, not containerd: %s", what, runtime, instead)
}

// pin sets or takes a pin, and waits until the runtime reports it.
func pin(ctx context.Context, client *cri.Client, own *containerd.Client, image string, on bool) (pinning, error) {
	spec := &runtimeapi.ImageSpec{Image: image}
	status, err := client.ImageStatus(ctx, spec)
	if err != nil {
		return pinning{}, err
	}
	if status == nil {
		return pinning{}, fmt.Errorf("the node has no image %s: kubelot image ls lists its images, kubelot image pull %s "+
			"gets it", image, image)
	}
	p := pinning{
		Image: image, ID: status.GetId(), Pinned: on, Names: slices.Concat(status.GetRepoTags(), status.GetRepoDigests()),
	}
	if err := own.Pin(ctx, append(slices.Clone(p.Names), p.ID), on); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, pinPatience)
	defer cancel()
	return p, reported(ctx, client, &runtimeapi.ImageSpec{Image: p.ID}, on)
}

// reported waits until the runtime says of the image that it is pinned, or isn't.
func reported(ctx context.Context, client *cri.Client, spec *runtimeapi.ImageSpec, on bool) error {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		status, err := client.ImageStatus(ctx, spec)
		switch {
		case err != nil:
			return err
		case status == nil:
			return fmt.Errorf("image %s has just been removed", spec.GetImage())
		case status.GetPinned() == on:
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the image has its label, but containerd doesn't heed it in CRI: it takes version 1.7 or newer")
		case <-look.C:
		}
	}
}

// lookAgain is the pause between two looks at what a person waits for.
const lookAgain = 100 * time.Millisecond

// imageNames are the names of the node's images, for completion.
func imageNames(ctx context.Context, at runtimeFlags) []string {
	ctx, cancel := context.WithTimeout(ctx, completePatience)
	defer cancel()
	client, err := at.dial()
	if err != nil {
		return nil
	}
	defer client.Close()
	all, err := client.ListImages(ctx, nil)
	if err != nil {
		return nil
	}
	var names []string
	for _, image := range all {
		names = append(names, image.GetRepoTags()...)
	}
	slices.Sort(names)
	return names
}
