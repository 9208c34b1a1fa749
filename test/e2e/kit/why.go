package kit

import (
	"context"
	"encoding/json"
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

// whyCause is an error unless kubelot why names a cause of that kind, with a sentence that has the text.
func (b *Bed) whyCause(ctx context.Context, about, kind, text string) error {
	out, err := b.Why(ctx, about, "-o", "json")
	if err != nil {
		return fmt.Errorf("kubelot why: %w\n%s", err, out)
	}
	var answer struct {
		Causes []struct {
			Kind     string `json:"kind"`
			Sentence string `json:"sentence"`
		} `json:"causes"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return fmt.Errorf("kubelot why says %s: %w", out, err)
	}
	for _, c := range answer.Causes {
		if c.Kind == kind && strings.Contains(c.Sentence, text) {
			return nil
		}
	}
	return fmt.Errorf("kubelot why names no cause %s with %q: %+v", kind, text, answer.Causes)
}

// NodeBecause waits until kubelot why names that cause of the node's trouble. The kinds are those of docs/why.md.
func (b *Bed) NodeBecause(t testing.TB, kind, text string) {
	t.Helper()
	Eventually(t, "the cause "+kind+" of the node", func() error { return b.whyCause(t.Context(), "node", kind, text) })
}

// Because waits until kubelot why names that cause of the pod's trouble. The kinds are those of docs/why.md.
func (n *Namespace) Because(name, kind, text string) {
	n.t.Helper()
	Eventually(n.t, "the cause "+kind+" of "+name, func() error {
		return n.bed.whyCause(n.t.Context(), n.Name+"/"+name, kind, text)
	})
}
