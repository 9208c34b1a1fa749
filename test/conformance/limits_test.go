package conformance

import (
	"strings"
	"testing"
)

func TestLimitsFileIsWellFormed(t *testing.T) {
	for _, suite := range []Suite{Cluster(), Node(), Storage()} {
		if _, err := suite.Limits(); err != nil {
			t.Error(err)
		}
	}
}

func TestParseLimits(t *testing.T) {
	limits, err := parseLimits("# a comment\n\n\\[sig-node\\] Pods .* dummy -- no dummy links\n")
	if err != nil || len(limits) != 1 {
		t.Fatalf("parseLimits = %v, %v; want one limit", limits, err)
	}
	if got := reason(limits, "[sig-node] Pods with a dummy link [Conformance]"); got != "no dummy links" {
		t.Errorf("reason = %q", got)
	}
	if got := reason(limits, "[sig-node] Pods without"); got != "" {
		t.Errorf("reason of another spec = %q", got)
	}
	for text, want := range map[string]string{
		"# one\n[sig-node] Pods\n": "line 2",
		"a(b -- a reason\n":        "missing closing",
		"a --  \n":                 "no reason",
	} {
		if _, err := parseLimits(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parseLimits(%q): %v, want an error with %q", text, err, want)
		}
	}
}
