package run

import (
	"slices"
	"testing"
)

const output = `Running Suite: Kubernetes e2e suite - /repo/.bin
Random Seed: 1 - will randomize all specs

Will run 12 of 6894 specs
Running in parallel across 6 processes
•••
------------------------------
• [FAILED] [4.055 seconds]
[sig-node] ConfigMap [It] should be consumable [sig-node, Conformance]
/src/configmap.go:46
------------------------------
•••••••`

func TestScan(t *testing.T) {
	got := scan(output)
	if got.total != 12 || got.ended != 11 || len(got.failed) != 1 {
		t.Fatalf("scan = %+v, want 11 of 12 ended, one failed", got)
	}
	if empty := scan(""); empty.ended != 0 || len(empty.since(progress{})) != 0 {
		t.Errorf("scan of nothing = %+v", empty)
	}
}

func TestSince(t *testing.T) {
	now := scan(output)
	want := []string{
		"FAILED [sig-node] ConfigMap [It] should be consumable [sig-node, Conformance]",
		"11 of 12 specs ended, 1 failed",
	}
	if got := now.since(progress{}); !slices.Equal(got, want) {
		t.Errorf("since the beginning: %q, want %q", got, want)
	}
	if got := now.since(now); len(got) != 0 {
		t.Errorf("since the same: %q, want nothing", got)
	}
	last := now
	last.ended = 12
	if got := last.since(now); len(got) != 1 {
		t.Errorf("at the end: %q, want the count", got)
	}
}
