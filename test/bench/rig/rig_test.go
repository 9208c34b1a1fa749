package rig

import (
	"slices"
	"testing"
)

// The daemons say what their heaps have in use, and hold no more than those of a real node.
func TestTheCrewSamplesNoAllocations(t *testing.T) {
	o := Options{MaxPods: 7, Args: []string{"--v=4"}}.node()
	if !slices.Contains(o.ExtraArgs, "--profiling") || !slices.Contains(o.ExtraArgs, "--max-pods=7") ||
		!slices.Contains(o.ExtraArgs, "--v=4") {
		t.Errorf("arguments %q", o.ExtraArgs)
	}
	if !slices.Contains(o.ExtraEnv, "GODEBUG=memprofilerate=0") {
		t.Errorf("environment %q", o.ExtraEnv)
	}
}
