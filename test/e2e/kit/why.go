package kit

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// Why is what kubelot why says with these arguments.
func (b *Bed) Why(ctx context.Context, args ...string) (string, error) {
	return Output(exec.CommandContext(ctx, b.Program("kubelot"),
		append([]string{"why", "--run-dir=" + b.Bed.Path("run")}, args...)...))
}

// WhySays is an error unless kubelot why says all that with the argument, which is a pod or "node".
func (b *Bed) WhySays(ctx context.Context, about string, words ...string) error {
	answer, err := b.Why(ctx, about)
	if err != nil {
		return fmt.Errorf("kubelot why: %w\n%s", err, answer)
	}
	for _, want := range words {
		if !strings.Contains(answer, want) {
			return errors.New("kubelot why doesn't say " + want + ":\n" + answer)
		}
	}
	return nil
}

// NodeSays waits until kubelot why says all that of the node.
func (b *Bed) NodeSays(t testing.TB, words ...string) {
	t.Helper()
	Eventually(t, "what is wrong with the node", func() error { return b.WhySays(t.Context(), "node", words...) })
}

// Says waits until kubelot why says all that of the pod.
func (n *Namespace) Says(name string, words ...string) {
	n.t.Helper()
	Eventually(n.t, "what keeps "+name, func() error {
		return n.bed.WhySays(n.t.Context(), n.Name+"/"+name, words...)
	})
}
