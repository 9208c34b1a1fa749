package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/containerd"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cri"
	"kubelot.dev/cri/imagename"
)

// importBase names imported images of which the archive only says a tag. Names that begin with localhost are never
// looked up at a registry by mistake.
const importBase = "localhost/imported"

// imported is an image that was loaded from an archive.
type imported struct {
	Name string `json:"name"`
	// ID and Bytes are as CRI reports the image; it is what pods get under the name.
	ID    string `json:"id"`
	Bytes uint64 `json:"bytes"`
}

func imageImport(stdout *os.File) *cobra.Command {
	var (
		at   imageFlags
		base string
	)
	c := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Load the images of an OCI or docker archive.",
		Long: `Loads the images for this node's platform from an archive as docker save, podman save, skopeo and buildah write
it, compressed or not, and unpacks them. FILE - is the standard input. Pods whose imagePullPolicy isn't Always use them
without a registry.

The archive says how the images are called. Where it only says a tag, as OCI archives do, the image is called
--base-name:TAG.

This works with containerd (1.7 or newer), through its own API. With CRI-O, use skopeo copy or podman load, which
share its storage.

Exit codes: 0 if the runtime has the images, 1 if not.`,
		Example: `  kubelot image import app.tar
  docker save app:1 | kubelot image import -
  kubelot image import app.oci.tar --base-name registry.example/app -o json | jq -r '.[].name'`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := at.check("text"); err != nil {
				return err
			}
			name, err := imagename.ParseQualified(base)
			if err != nil || name.Tag != "" || name.Digest != "" {
				return fmt.Errorf("--base-name %q: want a name without a tag, such as registry.example/app", base)
			}
			archive := io.NopCloser(c.InOrStdin())
			if args[0] != "-" {
				if archive, err = os.Open(args[0]); err != nil {
					return err
				}
			}
			defer archive.Close()
			return at.withContainerd(c.Context(), "import images", func(client *cri.Client, own *containerd.Client) error {
				begun := time.Now()
				names, err := own.Import(c.Context(), archive, name.String())
				if err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
				all, err := described(c.Context(), client, names)
				if err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
				if at.output == "json" {
					return writeJSON(stdout, all)
				}
				return say(stdout, importText(all, time.Since(begun)))
			})
		},
	}
	at.register(c, "text")
	c.Flags().StringVar(&base, "base-name", importBase, "the name of images of which the archive only says a tag")
	return c
}

func importText(all []imported, took time.Duration) string {
	var lines []string
	for _, image := range all {
		lines = append(lines, fmt.Sprintf("%s: imported as %s, %.1fMi", image.Name, image.ID, float64(image.Bytes)/(1<<20)))
	}
	return strings.Join(append(lines, "took "+words.Brief(took)), "\n")
}

// described waits until CRI has the images, which learns of them by an event, and says how it calls them.
func described(ctx context.Context, client *cri.Client, names []string) ([]imported, error) {
	if len(names) == 0 {
		return nil, errors.New("the archive has no image with a name or a tag: give it one when it is saved")
	}
	ctx, cancel := context.WithTimeout(ctx, pinPatience)
	defer cancel()
	slices.Sort(names)
	var all []imported
	for _, name := range slices.Compact(names) {
		status, err := present(ctx, client, name)
		if err != nil {
			return nil, err
		}
		all = append(all, imported{Name: name, ID: status.GetId(), Bytes: status.GetSize()})
	}
	return all, nil
}

// present waits until CRI has the image.
func present(ctx context.Context, client *cri.Client, name string) (*runtimeapi.Image, error) {
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	for {
		status, err := client.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
		if err != nil || status != nil {
			return status, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("containerd has imported %s, but CRI doesn't show it: is it for another platform?", name)
		case <-look.C:
		}
	}
}
