package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubelot.dev/test/conformance"
)

func TestCheck(t *testing.T) {
	numa, both := conformance.NUMA(), []string{"kubelot", "kubelet"}
	for _, c := range []struct {
		name string
		o    options
		err  string // part of it
	}{
		{"both agents", options{agents: []string{"kubelot", "kubelet"}}, ""},
		{"no agent of ours", options{agents: []string{"cubelet"}}, "cubelet"},
		{"the list from the kubelet", options{agents: []string{"kubelet"}, update: "x"}, ""},
		{"the list from kubelot", options{agents: []string{"kubelot"}, update: "x"}, "AGENT=kubelet"},
		{"the list from a part", options{agents: []string{"kubelet"}, update: "x", quick: true}, "without QUICK"},
		{"numa on a machine", options{suite: numa, agents: both, machine: "x", topology: []int{2, 4, 1}}, ""},
		{
			"the list from another machine",
			options{suite: numa, agents: both, machine: "x", topology: []int{2, 4, 2}, update: "x"},
			"without TOPOLOGY",
		},
		{"the list from the usual machine", options{
			suite: numa, agents: both, machine: "x", topology: []int{2, 2, 2}, update: "x",
		}, ""},
		{"half a topology", options{suite: numa, agents: both, machine: "x", topology: []int{2, 4}}, "2,2,2"},
		{"no socket", options{suite: numa, agents: both, machine: "x", topology: []int{0, 4, 1}}, "2,2,2"},
		{"node on a machine", options{suite: conformance.Node(), agents: both, machine: "x"}, "numa"},
		{"the list from a choice", options{agents: []string{"kubelet"}, update: "x", focus: "Pods"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.o.check(); (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

// There are no results of the kubelet, as in a fresh checkout.
func TestJudgeByTheListAlone(t *testing.T) {
	rules := conformance.Rules{Passes: []string{"a", "b"}}
	for outcome, good := range map[conformance.Outcome]bool{
		conformance.Passed: true, conformance.Failed: false, conformance.Skipped: false, conformance.Lost: false,
	} {
		o := options{agents: []string{"kubelot"}, out: t.TempDir()}
		results := map[string]conformance.Results{"kubelot": {"a": {Outcome: conformance.Passed}, "b": {Outcome: outcome}}}
		if err := judge(o, results, results, rules); (err == nil) != good {
			t.Errorf("a listed spec is %s: error %v", outcome, err)
		}
		table, err := os.ReadFile(filepath.Join(o.out, "table.txt"))
		if err != nil || !strings.Contains(string(table), string(outcome)) ||
			strings.Contains(string(table), "wrong:") == good {
			t.Errorf("a listed spec is %s: table (error %v):\n%s", outcome, err, table)
		}
	}
}

// What was found earlier, of another agent or by another part, is in the table and decides nothing.
func TestJudgeLeavesOldResults(t *testing.T) {
	o := options{agents: []string{"kubelot"}, out: t.TempDir(), quick: true}
	now := conformance.Results{"a": {Outcome: conformance.Passed}}
	err := judge(o, map[string]conformance.Results{
		"kubelot": {"a": {Outcome: conformance.Passed}, "earlier": {Outcome: conformance.Failed}},
		"kubelet": {"a": {Outcome: conformance.Passed}, "slow": {Outcome: conformance.Failed}},
	}, map[string]conformance.Results{"kubelot": now}, conformance.Rules{Passes: []string{"a", "slow", "earlier"}})
	if err != nil {
		t.Error(err)
	}
	table, err := os.ReadFile(filepath.Join(o.out, "table.txt"))
	if err != nil || !strings.Contains(string(table), "earlier") || !strings.Contains(string(table), "slow") {
		t.Errorf("table (error %v):\n%s", err, table)
	}
}
