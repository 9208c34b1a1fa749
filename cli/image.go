package cli

import (
	"errors"
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

// endpoints are the sockets of the runtime that is named, or else of the node's. The one of images may be empty.
func (f *runtimeFlags) endpoints() (runtime, images string, err error) {
	if f.endpoint != "" {
		return f.endpoint, "", nil
	}
	crew, err := settings.Crew(procDir, f.runDir)
	if err != nil {
		return "", "", err
	}
	args, from, err := ownFlags(crew, f.runDir)
	if err != nil {
		return "", "", fmt.Errorf("%w, or the runtime with --container-runtime-endpoint", err)
	}
	_, resolved, err := parsed(args)
	if err != nil {
		return "", "", fmt.Errorf("configuration (%s): %w", from, err)
	}
	return resolved.RuntimeEndpoint, resolved.ImageEndpoint, nil
}

// dial makes a client of the runtime.
func (f *runtimeFlags) dial() (*cri.Client, error) {
	runtime, images, err := f.endpoints()
	if err != nil {
		return nil, err
	}
	return cri.Dial(runtime, cri.Options{Timeout: busPatience, ImageEndpoint: images})
}

// imageFlags are those that all commands on images have.
type imageFlags struct {
	runtimeFlags
	output string
}

// register adds the flags. text is what the command writes unless JSON is asked for.
func (f *imageFlags) register(c *cobra.Command, text string) {
	f.runtimeFlags.register(c)
	c.Flags().StringVar(&f.runDir, "run-dir", config.RunDir, "directory with kubelot's sockets and keys")
	offerOutput(c, &f.output, text)
}

// check refuses formats that there aren't.
func (f *imageFlags) check(text string) error {
	return checkOutput(f.output, text)
}

func imageCommand(stdout *os.File) *cobra.Command {
	c := &cobra.Command{
		Use:   "image",
		Short: "List, pull, import and pin the images of the container runtime.",
		Example: `  kubelot image ls
  kubelot image pull registry.k8s.io/pause:3.10
  kubelot image import app.tar
  kubelot image pin registry.example/app:1`,
	}
	c.AddCommand(imageList(stdout), imagePull(stdout), imageImport(stdout), imagePin(stdout), imageUnpin(stdout))
	return c
}

func imageList(stdout *os.File) *cobra.Command {
	var (
		at      imageFlags
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
			if err := at.check("table"); err != nil {
				return err
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
			if at.output == "json" {
				return writeJSON(stdout, rows)
			}
			_, err = fmt.Fprint(stdout, images.Table(rows, paint.For(stdout, noColor)))
			return err
		},
	}
	at.register(c, "table")
	c.Flags().BoolVar(&noColor, "no-color", false, "no colours, even on a terminal")
	return c
}

// pulled is an image that the runtime has pulled.
type pulled struct {
	Image string `json:"image"`
	// Ref is how the runtime calls it.
	Ref     string  `json:"ref"`
	Seconds float64 `json:"seconds"`
}

func imagePull(stdout *os.File) *cobra.Command {
	var at imageFlags
	c := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Have the container runtime pull images, without credentials.",
		Long: `Has the container runtime pull images one after the other, as podsync does for pods that have no pull secrets.
What the runtime itself has of credentials and mirrors counts.

Exit codes: 0 if the runtime has all images, 1 if not.`,
		Example: `  kubelot image pull registry.k8s.io/pause:3.10
  kubelot image pull registry.k8s.io/pause:3.10 -o json | jq -r '.[].ref'`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := at.check("text"); err != nil {
				return err
			}
			client, err := at.dial()
			if err != nil {
				return err
			}
			defer client.Close()
			var all []pulled
			for _, image := range args {
				begun := time.Now()
				ref, pullErr := client.PullImage(c.Context(), &runtimeapi.ImageSpec{Image: image}, nil, nil)
				if err = pullErr; err != nil {
					break
				}
				took := time.Since(begun)
				all = append(all, pulled{Image: image, Ref: ref, Seconds: took.Seconds()})
				if at.output == "text" {
					if err := say(stdout, fmt.Sprintf("%s: pulled in %s as %s", image, words.Brief(took), ref)); err != nil {
						return err
					}
				}
			}
			if at.output == "json" && len(all) > 0 {
				return errors.Join(err, writeJSON(stdout, all))
			}
			return err
		},
	}
	at.register(c, "text")
	return c
}
