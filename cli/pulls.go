package cli

import (
	"cmp"
	"context"

	"kubelot.dev/cli/internal/pulls"
)

// pullsUnderWay are the images that the node's runtime is fetching. They are an extra: without them, an answer says how
// long a pull has taken.
func pullsUnderWay(ctx context.Context, runDir string) []pulls.Pull {
	runtime, images, err := (&runtimeFlags{runDir: runDir}).endpoints()
	if err != nil {
		return nil
	}
	all, err := pulls.Read(ctx, cmp.Or(images, runtime))
	if err != nil {
		return nil
	}
	return all
}
