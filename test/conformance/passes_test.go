package conformance

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPassesAreInScope(t *testing.T) {
	for _, suite := range []Suite{Cluster(), Node(), NUMA(), Storage()} {
		specs, err := suite.Passes()
		if err != nil {
			t.Fatal(err)
		}
		if suite.passes == "" {
			continue
		}
		for _, spec := range specs {
			if !matches(suite.scope, spec) || matches(suite.never, spec) ||
				suite.Target == "conformance" && !strings.Contains(spec, "[Conformance]") {
				t.Errorf("%q is in passes.txt of %s and never run", spec, suite.Target)
			}
		}
		var again bytes.Buffer
		if err := suite.WritePasses(&again, specs); err != nil || again.String() != suite.passes {
			t.Errorf("passes.txt of %s isn't as it is written (error %v): edited by hand?", suite.Target, err)
		}
	}
}

func TestParsePassesErrors(t *testing.T) {
	for text, want := range map[string]string{"# none\n\n": "no spec", "b\na\nb\n": "1 specs are named twice"} {
		if _, err := parsePasses(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parsePasses(%q): %v, want an error with %q", text, err, want)
		}
	}
	if err := Cluster().WritePasses(&bytes.Buffer{}, nil); err == nil {
		t.Error("a list without specs is written")
	}
}

func TestExpected(t *testing.T) {
	const slowSpec = "[sig-node] NoExecuteTaintManager Single Pod [Serial] evicts [Conformance]"
	listed := []string{"[sig-node] Pods a", slowSpec}
	for _, c := range []struct {
		scope Scope
		want  []string
	}{
		{Scope{Suite: Cluster()}, listed},
		{Scope{Suite: Cluster(), Quick: true}, listed[:1]},
		{Scope{Suite: Cluster().Without("Pods a")}, listed[1:]},
		{Scope{Suite: Cluster().Without("Pods a").Without("Single Pod")}, nil},
		{Scope{Suite: Cluster(), Focus: "Pods"}, nil},
		{Scope{Suite: Cluster(), Focus: "Pods", Quick: true}, nil},
		{Scope{Suite: Suite{brief: []string{"Pods"}}, Quick: true}, listed[:1]},
		{Scope{Suite: Suite{brief: []string{"Pods"}}}, listed},
	} {
		if got := c.scope.Expected(listed); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.scope, got, c.want)
		}
	}
	if listed[1] != slowSpec {
		t.Error("the list was changed")
	}
}

// Each expression that takes specs out of the quick part must mean a spec that exists.
func TestQuickPartByTheList(t *testing.T) {
	for _, suite := range []Suite{Cluster(), Node(), NUMA(), Storage()} {
		specs, err := suite.Passes()
		if err != nil {
			t.Fatal(err)
		}
		if suite.passes == "" {
			continue
		}
		for _, expression := range slices.Concat(suite.slow, suite.brief) {
			if !slices.ContainsFunc(specs, regexp.MustCompile(expression).MatchString) {
				t.Errorf("%q means no spec of passes.txt of %s", expression, suite.Target)
			}
		}
		quick := (Scope{Suite: suite, Quick: true}).Expected(specs)
		// A list that is as short as its quick part has just begun.
		all := len(quick) == len(specs) && len(specs) > len(suite.brief)
		if all || suite.brief == nil && len(quick) < len(specs)/2 {
			t.Errorf("the quick part of %s has %d of %d specs", suite.Target, len(quick), len(specs))
		}
	}
}

func TestFlags(t *testing.T) {
	suite := Suite{labels: "L", scope: []string{"a", "b"}, never: []string{"n"}, slow: []string{"s"}, brief: []string{"q"}}
	for _, c := range []struct {
		scope Scope
		want  []string
	}{
		{Scope{Suite: suite}, []string{"--label-filter=L", "--focus=a|b", "--skip=n"}},
		{Scope{Suite: suite, Quick: true}, []string{"--label-filter=L", "--focus=q", "--skip=n|s"}},
		{Scope{Suite: suite, Focus: "f"}, []string{"--label-filter=L", "--focus=f", "--skip=n"}},
		{Scope{Suite: Suite{labels: "L", scope: []string{"a"}}}, []string{"--label-filter=L", "--focus=a"}},
	} {
		if got := c.scope.Flags(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.scope, got, c.want)
		}
	}
}

func TestTimeLimit(t *testing.T) {
	if got := (Scope{Suite: Cluster(), Quick: true}).TimeLimit(); got != 12*time.Minute {
		t.Errorf("quick: %s, want 12m", got)
	}
	if got := (Scope{Suite: Cluster()}).TimeLimit(); got <= 30*time.Minute {
		t.Errorf("all: %s, too short for some 15 minutes on a calm machine", got)
	}
}

// The list may be written in parts: a run says nothing of the specs that it left out.
func TestRenew(t *testing.T) {
	results := Results{
		"a": {Outcome: Passed}, "b": {Outcome: Failed}, "c": {Outcome: Skipped}, "new": {Outcome: Passed},
	}
	want := []string{"a", "new", "other"}
	if got := results.Renew([]string{"a", "b", "c", "other"}); !slices.Equal(got, want) {
		t.Errorf("the list is now %q, want %q", got, want)
	}
}

func TestLostAndUnlisted(t *testing.T) {
	results := Results{"a": {Outcome: Passed}, "b": {Outcome: Failed, Message: "why"}, "new": {Outcome: Passed}}
	results.AddLost([]string{"a", "b", "gone"})
	if results["gone"].Outcome != Lost || results["a"].Outcome != Passed || results["b"].Message != "why" ||
		len(results) != 4 {
		t.Errorf("results %+v, want gone alone to be lost", results)
	}
	if got := results.Unlisted([]string{"a", "b", "gone"}); !slices.Equal(got, []string{"new"}) {
		t.Errorf("unlisted %q, want new", got)
	}
	if faults := Faults(Compare(results, nil, Rules{Passes: []string{"a", "b", "gone"}})); faults != 2 {
		t.Errorf("%d faults, want the failed and the lost one", faults)
	}
}
