package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/apply"
	"kubelot.dev/cli/internal/why"
)

// finish waits for the pods of the results as the flags say, and ends the command: with JSON, and with an error that
// says of each pod that isn't done why that is so.
func (f *manifestFlags) finish(ctx context.Context, conn *bus.Conn, stdout *os.File, results []manifestResult,
	w waiting,
) error {
	var problems []error
	if f.wait > 0 && !f.dryRun {
		refs := make([]topic.Ref, len(results))
		for i := range results {
			refs[i] = results[i].Pod
		}
		stands, err := f.await(ctx, conn, stdout, refs, w)
		if err != nil {
			return exitError{err, exitProblems}
		}
		for i, ref := range refs {
			r := &results[i]
			if r.Done = stands[ref.UID].Done; r.Done {
				continue
			}
			r.Problem = cmp.Or(whySentence(ctx, conn, ref), stands[ref.UID].Text)
			called := ref.Namespace + "/" + ref.Name
			problems = append(problems, fmt.Errorf("pod %s %s: %s (kubelot why %s says more)", called, w.undone, r.Problem,
				called))
		}
	}
	if f.output == "json" {
		if err := writeJSON(stdout, results); err != nil {
			return err
		}
	}
	switch {
	case len(problems) == 0:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return exitError{errors.Join(problems...), exitProblems}
}

// await shows how the pods get on.
func (f *manifestFlags) await(ctx context.Context, conn *bus.Conn, stdout *os.File, refs []topic.Ref, w waiting,
) (map[string]apply.Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	return apply.Await(ctx, conn, refs, w.judge, func(ref topic.Ref, s apply.Standing) {
		if f.output == "text" {
			// What can't be shown is no reason to stop waiting.
			_ = say(stdout, fmt.Sprintf("pod %s/%s: %s", ref.Namespace, ref.Name, s.Text))
		}
	})
}

// whyPatience is how long the cause of a failure may take to be found.
const whyPatience = 10 * time.Second

// whySentence is what kubelot why says of a pod first; empty if it can't be asked.
func whySentence(ctx context.Context, conn *bus.Conn, ref topic.Ref) string {
	ctx, cancel := context.WithTimeout(ctx, whyPatience)
	defer cancel()
	snapshot, err := why.Read(ctx, conn)
	if err != nil {
		return ""
	}
	return why.Explain(snapshot, ref, time.Now()).Sentence
}
