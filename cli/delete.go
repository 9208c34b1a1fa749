package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/apply"
)

func deleteCommand(stdout *os.File) *cobra.Command {
	var (
		o      manifestFlags
		absent bool
	)
	c := &cobra.Command{
		Use:   "delete POD... | -f FILE|DIRECTORY|-",
		Short: "Remove pods that kubelot apply runs.",
		Long: `Removes the manifests of pods that kubelot apply has written, and waits until the pods are gone. POD is
namespace/name or a name, as in the manifest or as kubelot pods shows it. With -f it is the pods of the files.

Pods of other manifests, of staticPodURL or of the API server are refused: who has made them removes them.

Exit codes: 0 if the pods are gone, 1 if nothing was changed because of an error, or not all was, 2 if the manifests
were removed and a pod isn't gone in time.`,
		Example: `  kubelot delete web
  kubelot delete shop/web shop/db --wait 0
  kubelot delete -f web.yaml --ignore-not-found`,
		RunE: func(c *cobra.Command, args []string) error {
			targets, err := o.targets(c, args)
			if err != nil {
				return err
			}
			conn, err := o.busAt.connect(c.Context())
			if err != nil {
				return err
			}
			defer conn.Close()
			return o.remove(c.Context(), conn, targets, absent, stdout)
		},
	}
	o.register(c, "the pods are gone")
	c.Flags().BoolVar(&absent, "ignore-not-found", false, "pods that aren't there are no error")
	return c
}

// targets are the pods that are named, or else those of the files.
func (f *manifestFlags) targets(c *cobra.Command, args []string) ([]apply.Target, error) {
	var targets []apply.Target
	for _, arg := range args {
		targets = append(targets, apply.Named(arg))
	}
	switch {
	case len(args) > 0 && len(f.files) > 0:
		return nil, errors.New("name pods, or files with -f, but not both")
	case len(args) == 0 && len(f.files) == 0:
		return nil, errors.New("name a pod, or a file with -f")
	case len(args) > 0 && f.output != "text" && f.output != "json":
		return nil, checkOutput(f.output, "text")
	case len(args) > 0:
		return targets, nil
	}
	docs, err := f.documents(c.InOrStdin())
	for _, d := range docs {
		targets = append(targets, apply.Target{Where: d.Where, Namespace: d.Namespace, Name: d.Name})
	}
	return targets, err
}

// remove removes the manifests, and waits for the end of their pods.
func (f *manifestFlags) remove(ctx context.Context, conn *bus.Conn, targets []apply.Target, absent bool,
	stdout *os.File,
) error {
	dir, there, updates, err := staticPods(ctx, conn)
	if err != nil {
		return err
	}
	changes, err := apply.Removals(targets, there, updates, absent)
	if err != nil {
		return fmt.Errorf("%w\nnothing was changed", err)
	}
	var results []manifestResult
	for i, change := range changes {
		if !f.dryRun {
			if err := apply.Remove(dir, change.File); err != nil {
				return fmt.Errorf("pod %s/%s: %w (%d of %d manifests were removed)", change.Namespace, change.Name, err, i,
					len(changes))
			}
		}
		r := manifestResult{Action: change.Action, File: filepath.Join(dir, change.File), DryRun: f.dryRun}
		running := apply.Of(updates, change.Namespace, change.Name)
		if len(running) == 0 { // podsync has not made a pod of it
			running = []topic.Ref{{Namespace: change.Namespace, Name: change.Name}}
		}
		for _, ref := range running {
			r.Pod = ref
			results = append(results, r)
		}
		if err := f.tell(stdout, r); err != nil {
			return err
		}
	}
	return f.finish(ctx, conn, stdout, results, waiting{judge: apply.Gone, undone: "isn't gone"})
}
