package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cli/internal/bundle"
	"kubelot.dev/cli/internal/settings"
	"kubelot.dev/cri"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/config"
)

const (
	// mebibyte is the unit of --max-size.
	mebibyte = 1 << 20
	// partsPerBundle is how many times a file fits into the archive at least.
	partsPerBundle = 4
	// partPatience is how long one file may take.
	partPatience = 20 * time.Second
)

// bundleOptions are the flags of kubelot bundle.
type bundleOptions struct {
	busAt   busFlags
	file    string
	since   time.Duration
	maxSize int
	output  string
}

func bundleCommand(stdout *os.File) *cobra.Command {
	var o bundleOptions
	c := &cobra.Command{
		Use:   "bundle",
		Short: "Collect what is known of this node into an archive for those who are to help.",
		Long: `Writes an archive (tar.gz) with versions, what kubelot doctor says, the configuration, the daemons' processes,
health and metrics, the pods, what the runtime has, the history of the bus (for kubelot replay), logs from the
journal, and the node's cgroups, mounts, filesystems and pressure. Values of environment variables, probe headers
and the like are left out. Logs are as the programs wrote them: read them before you send the file to others.

A file that is larger than a quarter of --max-size has its newest lines if it is a log, and its newest messages with all
that was stated if it is the history; of others it has the first lines.

The command changes nothing on the node. It says what it could not collect; manifest.json in the archive says it
too.

Exit codes: 0 if the archive was written, even if not all could be collected; 1 if it could not be written.`,
		Example: `  kubelot bundle
  kubelot bundle --since 10m --file /tmp/node.tar.gz
  kubelot bundle --max-size 8 -o json | jq '.files[] | select(.error)'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkOutput(o.output, "text"); err != nil {
				return err
			}
			if o.maxSize <= 0 || o.since <= 0 {
				return errors.New("--max-size and --since: want more than nothing")
			}
			return o.run(c.Context(), stdout)
		},
	}
	o.busAt.register(c)
	flags := c.Flags()
	flags.StringVarP(&o.file, "file", "f", "", "the new file (default kubelot-bundle-<host>-<time>.tar.gz)")
	flags.DurationVar(&o.since, "since", time.Hour, "how far back logs and history go")
	flags.IntVar(&o.maxSize, "max-size", 64, "most MiB of all files together, before compression")
	offerOutput(c, &o.output, "text")
	return c
}

func (o *bundleOptions) run(ctx context.Context, stdout *os.File) error {
	now := time.Now()
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the host's name for that of the file: %w: name the file with --file", err)
	}
	dir := fmt.Sprintf("kubelot-bundle-%s-%s", host, now.UTC().Format("20060102T150405Z"))
	if o.file == "" {
		o.file = dir + ".tar.gz"
	}
	file, err := createNew(o.file)
	if err != nil {
		return err
	}
	manifest, err := o.write(ctx, file, dir, now)
	size, sizeErr := file.Seek(0, io.SeekEnd)
	if err = errors.Join(err, sizeErr, file.Close()); err != nil {
		return errors.Join(err, os.Remove(o.file))
	}
	if o.output == "json" {
		return writeJSON(stdout, struct {
			File string `json:"file"`
			Size int64  `json:"size"`
			bundle.Manifest
		}{o.file, size, manifest})
	}
	_, err = fmt.Fprint(stdout, bundle.Text(manifest, o.file, size))
	return err
}

func (o *bundleOptions) write(ctx context.Context, file io.Writer, dir string, now time.Time) (bundle.Manifest, error) {
	node := o.node()
	conn, err := o.busAt.connect(ctx)
	if err != nil {
		node.NoBus = err
	} else {
		defer conn.Close()
		node.Bus = conn
	}
	limit := o.maxSize * mebibyte
	return bundle.Write(ctx, file, bundle.Parts(node), bundle.Manifest{Created: now, Version: node.Version},
		bundle.Options{Dir: dir, Part: limit / partsPerBundle, Total: limit, Patience: partPatience})
}

// node says where all is on this machine. Where the configuration isn't known, all else is collected.
func (o *bundleOptions) node() bundle.Node {
	n := bundle.Node{
		Version: daemon.Version(), Since: o.since, RunDir: o.busAt.runDir,
		Proc: procDir, Cgroups: "/sys/fs/cgroup", Etc: "/etc", Journal: bundle.Journal,
	}
	n.Settings = recordedSettings(procDir, n.RunDir)
	crew, err := settings.Crew(procDir, n.RunDir)
	n.Crew = crew
	var resolved *config.Config
	if err == nil {
		var args []string
		var from string
		if args, from, err = ownFlags(crew, n.RunDir); err == nil {
			n.Config = settings.Check(args)
			n.Config.From, n.Config.Running = from, settings.Compare(nil, crew)
			_, resolved, err = parsed(args)
		}
	}
	if err != nil {
		err = fmt.Errorf("the node's configuration is not known: %w", err)
		n.Config.Error = err.Error()
		fails := func(context.Context, io.Writer) error { return err }
		n.Doctor, n.Runtime, n.Disks = fails, fails, []string{"/", config.RootDir, "/var/log/pods", n.RunDir}
		return n
	}
	n.Disks = []string{"/", resolved.RootDir, resolved.PodLogsDir, n.RunDir}
	n.Doctor = func(ctx context.Context, out io.Writer) error {
		_, err := io.WriteString(out, report(examine(ctx, resolved)))
		return err
	}
	n.Runtime = func(ctx context.Context, out io.Writer) error {
		return describeRuntime(ctx, resolved.RuntimeEndpoint, out)
	}
	return n
}

// describeRuntime writes what the container runtime has. Annotations are left out: kubectl's copy of the manifest, with
// the environment, is one of them.
func describeRuntime(ctx context.Context, endpoint string, out io.Writer) error {
	client, err := cri.Dial(endpoint, cri.Options{Timeout: busPatience})
	if err != nil {
		return err
	}
	defer client.Close()
	var runtime struct {
		Version    *runtimeapi.VersionResponse `json:"version,omitempty"`
		Status     *runtimeapi.RuntimeStatus   `json:"status,omitempty"`
		Sandboxes  []*runtimeapi.PodSandbox    `json:"sandboxes"`
		Containers []*runtimeapi.Container     `json:"containers"`
		Images     []*runtimeapi.Image         `json:"images"`
	}
	if runtime.Version, err = client.Version(ctx); err != nil {
		return err // it can't be reached
	}
	var errs [4]error
	status, err := client.Status(ctx, false)
	runtime.Status, errs[0] = status.GetStatus(), err
	runtime.Sandboxes, errs[1] = client.ListPodSandbox(ctx, nil)
	runtime.Containers, errs[2] = client.ListContainers(ctx, nil)
	runtime.Images, errs[3] = client.ListImages(ctx, nil)
	for _, s := range runtime.Sandboxes {
		s.Annotations = nil
	}
	for _, c := range runtime.Containers {
		c.Annotations, c.Image = nil, nil // the image is in ImageRef too, without annotations
	}
	for _, i := range runtime.Images {
		i.Spec = nil
	}
	return errors.Join(append(errs[:], json.NewEncoder(out).Encode(runtime))...)
}
