package cli

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/images"
	"kubelot.dev/cli/internal/paint"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cli/internal/words"
	"kubelot.dev/cri"
	"kubelot.dev/daemon/config"
)

// runtimeFlags say which container runtime a command talks to.
type runtimeFlags struct {
	runDir   string
	endpoint string
}

func (f *runtimeFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.endpoint, "container-runtime-endpoint", "",
		"the runtime's socket (default: that of the node's configuration)")
}

// dial makes a client of the runtime that is named, or else of the node's.
func (f *runtimeFlags) dial() (*cri.Client, error) {
	options := cri.Options{Timeout: busPatience}
	if f.endpoint != "" {
		return cri.Dial(f.endpoint, options)
	}
	crew, err := settings.Crew(procDir, f.runDir)
	if err != nil {
		return nil, err
	}
	args, from, err := ownFlags(crew, f.runDir)
	if err != nil {
		return nil, fmt.Errorf("%w, or the runtime with --container-runtime-endpoint", err)
	}
	_, resolved, err := parsed(args)
	if err != nil {
		return nil, fmt.Errorf("configuration (%s): %w", from, err)
	}
	options.ImageEndpoint = resolved.ImageEndpoint
	return cri.Dial(resolved.RuntimeEndpoint, options)
}

func imageCommand(stdout *os.File) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "List and pull the images of the container runtime.",
		Example: `  kubelot image ls
  kubelot image pull registry.k8s.io/pause:3.10`,
	}
	c.AddCommand(imageList(stdout), imagePull(stdout))
	return c
}

func imageList(stdout *os.File) *cobra.Command {
	var (
		at      runtimeFlags
		output  string
		noColor bool
	)
	c := &cobra.Command{
		Use:   "ls",
		Short: "List the images, and how many containers use each.",
		Long: `Lists the images of the container runtime. Images that no container uses may be collected, unless they are
pinned: kubelot gc --dry-run --all says which, and why others stay.

Exit codes: 0 if the runtime has answered, 1 if not.`,
		Example: `  kubelot image ls
  kubelot image ls -o json | jq '.[] | select(.containers == 0) | .names[0]'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("-o %q: want table or json", output)
			}
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			all, err := client.ListImages(c.Context(), nil)
			if err != nil {
				return err
			}
			containers, err := client.ListContainers(c.Context(), nil)
			if err != nil {
				return err
			}
			rows := images.Build(all, containers)
			if output == "json" {
				return writeJSON(stdout, rows)
			}
			_, err = fmt.Fprint(stdout, images.Table(rows, paint.For(stdout, noColor)))
			return err
		},
	}
	at.register(c)
	flags := c.Flags()
	flags.StringVar(&at.runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	flags.StringVarP(&output, "output", "o", "table", "table or json")
	flags.BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	complete(c, "output", []string{"table", "json"})
	return c
}

func imagePull(stdout *os.File) *cobra.Command {
	var at runtimeFlags
	c := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Have the container runtime pull images, without credentials.",
		Long: `Has the container runtime pull images one after the other, as podsync does for pods that have no pull secrets.
What the runtime itself has of credentials and mirrors counts.

Exit codes: 0 if the runtime has all images, 1 if not.`,
		Example: "  kubelot image pull registry.k8s.io/pause:3.10",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			for _, image := range args {
				begun := time.Now()
				ref, err := client.PullImage(c.Context(), &runtimeapi.ImageSpec{Image: image}, nil, nil)
				if err != nil {
					return err
				}
				line := fmt.Sprintf("%s: pulled in %s as %s", image, words.Brief(time.Since(begun)), ref)
				if err := say(stdout, line); err != nil {
					return err
				}
			}
			return nil
		},
	}
	at.register(c)
	c.Flags().StringVar(&at.runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	return c
}
