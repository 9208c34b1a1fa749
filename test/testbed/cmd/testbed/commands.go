package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"kubelot.dev/test/testbed/bed"
	"kubelot.dev/test/testbed/cluster"
	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/node"
	"kubelot.dev/test/testbed/tools"
)

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "testbed",
		Short:         "A Kubernetes control plane and a containerd of kubelot's own, for tests and for trying it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(toolsCommand(), suiteCommand(), kubeadmCommand(), containerdCommand(), clusterCommand(),
		cleanCommand(), reapCommand())
	return root
}

func toolsCommand() *cobra.Command {
	var runtimeOnly, forTests bool
	cmd := &cobra.Command{
		Use:   "tools",
		Short: "Build containerd, runc, the control plane and what else is missing into .bin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts := tools.WithControlPlane
			if runtimeOnly {
				parts = tools.RuntimeOnly
			}
			box, err := tools.Ensure(cmd.Context(), os.Stderr, parts)
			if err == nil && forTests {
				err = box.EnsureForTests(cmd.Context())
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&runtimeOnly, "runtime-only", false, "leave out the control plane and the kubelet")
	cmd.Flags().BoolVar(&forTests, "tests", false, "also what the suites of make test want on demand")
	cmd.MarkFlagsMutuallyExclusive("runtime-only", "tests")
	return cmd
}

func suiteCommand() *cobra.Command {
	var imagesOnly bool
	cmd := &cobra.Command{
		Use:   "suite",
		Short: "Build Kubernetes' end-to-end suite and the programs of its images into .bin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			box, err := tools.Find(os.Stderr)
			if err != nil {
				return err
			}
			parts := tools.WholeSuite
			if imagesOnly {
				parts = tools.SuiteImages
			}
			return box.EnsureSuite(cmd.Context(), parts, images.E2EPackages())
		},
	}
	cmd.Flags().BoolVar(&imagesOnly, "images-only", false, "leave out the suite itself, for others that use its images")
	return cmd
}

func kubeadmCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "kubeadm",
		Short: "Build Kubernetes' kubeadm into .bin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			box, err := tools.Find(os.Stderr)
			if err != nil {
				return err
			}
			_, err = box.EnsureKubeadm(cmd.Context())
			return err
		},
	}
}

func containerdCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "containerd",
		Short: "Run containerd in a directory until interrupted, then remove its containers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, cluster.Options{Dir: dir})
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func clusterCommand() *cobra.Command {
	var opts cluster.Options
	var agent string
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run containerd and a control plane in a directory until interrupted, then remove all of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.ControlPlane = true
			return serve(cmd, opts, agent)
		},
	}
	dirFlag(cmd, &opts.Dir)
	cmd.Flags().BoolVar(&opts.Registry, "registry", false, "also run a registry on loopback")
	cmd.Flags().StringVar(&agent, "agent", "", `also run a node: "kubelot" or "kubelet"`)
	return cmd
}

// serve starts the cluster and perhaps a node, tells how to use it, and waits
// for the signal.
func serve(cmd *cobra.Command, opts cluster.Options, agent ...string) (err error) {
	opts.Out = os.Stderr
	c, err := cluster.Start(cmd.Context(), opts)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); err == nil {
			err = stopErr
		}
	}()
	if name := strings.Join(agent, ""); name != "" {
		n, err := node.Start(cmd.Context(), c, node.Options{Agent: node.Agent(name)})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.Kill()) }()
	}
	env, err := c.WriteEnv()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, "Ready. For another terminal:\n  . "+env+
		"\nCtrl-C ends it and removes all but the logs.\n"); err != nil {
		return err
	}
	<-cmd.Context().Done()
	return nil
}

func cleanCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what a killed test bed left: processes, mounts, cgroups, network, files",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return bed.Clean(dir) },
	}
	dirFlag(cmd, &dir)
	return cmd
}

// reapCommand is run by the test bed itself: it waits for the end of its
// standard input, which comes when the test ends or is killed.
func reapCommand() *cobra.Command {
	var dir string
	var remove bool
	cmd := &cobra.Command{
		Use:    "reap",
		Short:  "Clean a directory when standard input ends",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
				return fmt.Errorf("wait for the test bed's end: %w", err)
			}
			if err := bed.Clean(dir); err != nil || !remove {
				return err
			}
			return os.Remove(dir)
		},
	}
	dirFlag(cmd, &dir)
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the directory too")
	return cmd
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "directory of the test bed")
	// It fails for an undefined flag only.
	_ = cmd.MarkFlagRequired("dir")
}
