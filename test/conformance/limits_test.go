package conformance

import (
	"errors"
	"strings"
	"testing"
)

func TestLimitsFileIsWellFormed(t *testing.T) {
	for _, suite := range []Suite{Cluster(), Node(), NUMA(), Storage()} {
		_, err := suite.Limits()
		_, err2 := suite.Differs()
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
		}
	}
}

// These specs of Kubernetes 1.36 want a pod to fail that waits for its plugin here.
func TestNodeDiffers(t *testing.T) {
	differs, err := Node().Differs()
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []string{
		"[sig-node] Device Plugin [Feature:DevicePlugin] [Serial] DevicePlugin [Serial] [Disruptive] Does not keep device " +
			"plugin assignments across node reboots if fails admission (no pod restart, no device plugin re-registration)",
		"[sig-node] Device Manager [Serial] [Feature:DeviceManager] With sample device plugin [Serial] [Disruptive] should " +
			"deploy pod consuming devices first but fail with admission error after kubelet restart in case device plugin " +
			"hasn't re-registered [Flaky]",
	} {
		if reason(differs, spec) == "" {
			t.Errorf("differs.txt doesn't have %s", spec)
		}
	}
	if got := reason(differs, "[sig-node] Device Plugin [Serial] Can schedule a pod that requires a device"); got != "" {
		t.Errorf("another spec differs: %s", got)
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
