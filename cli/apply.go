package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/apply"
	"kubelot.dev/cli/internal/pods"
)

// maxInput bounds what is read as manifests.
const maxInput = 10 << 20

// manifestFlags are those of the commands that change static pods.
type manifestFlags struct {
	busAt  busFlags
	files  []string
	output string
	wait   time.Duration
	dryRun bool
}

func (f *manifestFlags) register(c *cobra.Command, waits string) {
	f.busAt.register(c)
	flags := c.Flags()
	flags.StringArrayVarP(&f.files, "file", "f", nil, "a file, a directory of *.yaml, *.yml and *.json files, or - for "+
		"the standard input; may be repeated")
	offerOutput(c, &f.output, "text")
	flags.DurationVar(&f.wait, "wait", 2*time.Minute, "how long to wait until "+waits+"; 0 doesn't wait")
	flags.BoolVar(&f.dryRun, "dry-run", false, "check everything and say what would be done, but change nothing")
}

// manifestResult is what became of a manifest.
type manifestResult struct {
	Action apply.Action `json:"action"`
	Pod    topic.Ref    `json:"pod"`
	// File is the manifest's path.
	File string `json:"file"`
	// Warnings are what is odd about it.
	Warnings []string `json:"warnings,omitempty"`
	DryRun   bool     `json:"dryRun,omitempty"`
	// Done is true once the pod is ready or gone, as asked for. Problem says why it isn't.
	Done    bool   `json:"done"`
	Problem string `json:"problem,omitempty"`
}

func applyCommand(stdout *os.File) *cobra.Command {
	var o manifestFlags
	c := &cobra.Command{
		Use:   "apply -f FILE|DIRECTORY|-",
		Short: "Run pods without an API server: as static pods of this node.",
		Long: `Writes the v1 Pods of the files as manifests into the node's directory of static pods (staticPodPath of its
configuration), from which kubelot-podsync runs them, and waits until they are ready. A file may have several pods. A
pod that was applied before is changed: podsync ends it and starts it anew, unless the manifest is the same.

Everything is checked before anything is written, by podsync itself: the fields, and what static pods can't have,
which is all that an API server keeps (ConfigMaps, Secrets, service accounts, volume claims). Names that other
manifests have are refused; files that kubelot apply hasn't written are never changed. On a node of a cluster the pods
also get mirror pods at the API server.

The pods start again with the node, until kubelot delete removes them.

Exit codes: 0 if all pods are ready or have succeeded, 1 if nothing was changed because of an error, or not all was,
2 if the manifests were written and a pod isn't ready in time.`,
		Example: `  kubelot apply -f web.yaml
  kubelot apply -f manifests/ --dry-run
  kubelot apply -f - --wait 5m < web.yaml
  kubelot apply -f web.yaml -o json | jq '.[] | select(.done | not) | .problem'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			docs, err := o.documents(c.InOrStdin())
			if err != nil {
				return err
			}
			conn, err := o.busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			return o.apply(c.Context(), conn, docs, stdout)
		},
	}
	o.register(c, "the pods are ready")
	return c
}

// documents reads all that is named by -f.
func (f *manifestFlags) documents(stdin io.Reader) ([]apply.Document, error) {
	if err := checkOutput(f.output, "text"); err != nil {
		return nil, err
	}
	if len(f.files) == 0 {
		return nil, errors.New("name a file, a directory or - with -f")
	}
	var docs []apply.Document
	var problems []error
	for _, name := range f.files {
		paths, err := filesOf(name)
		problems = append(problems, err)
		for _, path := range paths {
			text, where, err := readInput(path, stdin)
			if err != nil {
				problems = append(problems, err)
				continue
			}
			more, err := apply.Documents(where, text)
			docs, problems = append(docs, more...), append(problems, err)
		}
	}
	return docs, errors.Join(problems...)
}

// filesOf are the files that a name means: itself, or those of the directory.
func filesOf(name string) ([]string, error) {
	// What isn't there is named when it is read.
	if info, err := os.Stat(name); name == "-" || err != nil || !info.IsDir() {
		return []string{name}, nil //nolint:nilerr // see above
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() &&
			!strings.HasPrefix(e.Name(), ".") {
			paths = append(paths, filepath.Join(name, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("the directory %s has no *.yaml, *.yml or *.json files", name)
	}
	return paths, nil
}

func readInput(path string, stdin io.Reader) (text []byte, where string, err error) {
	from, where := stdin, "standard input"
	if path != "-" {
		file, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) && strings.Contains(path, "://") {
			return nil, path, fmt.Errorf("%s: addresses aren't read: use curl %s | kubelot apply -f -", path, path)
		}
		if err != nil {
			return nil, path, err
		}
		defer file.Close()
		from, where = file, path
	}
	text, err = io.ReadAll(io.LimitReader(from, maxInput+1))
	if err == nil && len(text) > maxInput {
		err = fmt.Errorf("it is larger than %d MiB", maxInput>>20)
	}
	if err != nil {
		return nil, where, fmt.Errorf("%s: %w", where, err)
	}
	return text, where, nil
}

// apply checks all documents, writes them, and waits for their pods.
func (f *manifestFlags) apply(ctx context.Context, conn *bus.Conn, docs []apply.Document, stdout *os.File) error {
	dir, there, updates, err := staticPods(ctx, conn)
	if err != nil {
		return err
	}
	changes, planErr := apply.Plan(docs, there, updates)
	results := make([]manifestResult, len(changes))
	problems := []error{planErr}
	for i, change := range changes {
		reply, err := checkManifest(ctx, conn, topic.ManifestRequest{File: change.File, Data: change.Data})
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", change.Where, err))
			continue
		}
		results[i] = manifestResult{
			Action: change.Action, Pod: reply.Pod, File: filepath.Join(dir, change.File), Warnings: reply.Warnings,
			DryRun: f.dryRun,
		}
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("%w\nnothing was changed", err)
	}
	for i, change := range changes {
		if change.Action != apply.Unchanged && !f.dryRun {
			if err := apply.Write(dir, change.File, change.Data); err != nil {
				return fmt.Errorf("pod %s/%s: %w (%d of %d manifests were written)", change.Namespace, change.Name, err, i,
					len(changes))
			}
		}
		if err := f.tell(stdout, results[i]); err != nil {
			return err
		}
	}
	return f.finish(ctx, conn, stdout, results, waiting{judge: apply.Ready, undone: "isn't ready"})
}

// staticPods are the directory of static pods, its manifests, and the pods that the node has.
func staticPods(ctx context.Context, conn *bus.Conn) (dir string, there []apply.Manifest, updates map[string]topic.Pod,
	err error,
) {
	reply, err := checkManifest(ctx, conn, topic.ManifestRequest{})
	if err != nil {
		return "", nil, nil, err
	}
	if there, err = apply.Manifests(reply.Directory); err != nil {
		return "", nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, busPatience)
	defer cancel()
	updates, err = topic.PodUpdate.Read(ctx, conn)
	return reply.Directory, there, updates, err
}

func checkManifest(ctx context.Context, conn *bus.Conn, req topic.ManifestRequest) (topic.ManifestReply, error) {
	return ask(ctx, conn, "podsync", topic.ManifestCheck, req)
}

// tell says what was done with one manifest.
func (f *manifestFlags) tell(stdout *os.File, r manifestResult) error {
	if f.output != "text" {
		return nil
	}
	for _, warning := range r.Warnings {
		if err := say(stdout, "warning: "+r.File+": "+warning); err != nil {
			return err
		}
	}
	line := fmt.Sprintf("pod %s/%s: %s", r.Pod.Namespace, r.Pod.Name, r.Action)
	if f.dryRun {
		line += " (dry run)"
	}
	return say(stdout, line+" ("+r.File+")")
}

// waiting is what a command waits for.
type waiting struct {
	judge func(pods.State, topic.Ref) apply.Standing
	// undone is what a pod is that was not done in time.
	undone string
}
