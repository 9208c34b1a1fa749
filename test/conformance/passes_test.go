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
	specs, err := Passes()
	if err != nil {
		t.Fatal(err)
	}
	scope := regexp.MustCompile(strings.Join(inScope, "|"))
	for _, spec := range specs {
		if !scope.MatchString(spec) || !strings.Contains(spec, "[Conformance]") {
			t.Errorf("%q is in passes.txt and never run", spec)
		}
	}
	var again bytes.Buffer
	if err := WritePasses(&again, specs); err != nil || again.String() != passesFile {
		t.Errorf("passes.txt isn't as it is written (error %v): edited by hand?", err)
	}
}

func TestParsePassesErrors(t *testing.T) {
	for text, want := range map[string]string{"# none\n\n": "no spec", "b\na\nb\n": "1 specs are named twice"} {
		if _, err := parsePasses(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("parsePasses(%q): %v, want an error with %q", text, err, want)
		}
	}
	if err := WritePasses(&bytes.Buffer{}, nil); err == nil {
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
		{Scope{}, listed},
		{Scope{Quick: true}, listed[:1]},
		{Scope{Focus: "Pods"}, nil},
		{Scope{Focus: "Pods", Quick: true}, nil},
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
	specs, err := Passes()
	if err != nil {
		t.Fatal(err)
	}
	for _, expression := range slow {
		if !slices.ContainsFunc(specs, regexp.MustCompile(expression).MatchString) {
			t.Errorf("%q means no spec of passes.txt", expression)
		}
	}
	if quick := (Scope{Quick: true}).Expected(specs); len(quick) < len(specs)/2 {
		t.Errorf("the quick part has %d of %d specs", len(quick), len(specs))
	}
}

func TestTimeLimit(t *testing.T) {
	if got := (Scope{Quick: true}).TimeLimit(); got != 8*time.Minute {
		t.Errorf("quick: %s, want 8m", got)
	}
	if got := (Scope{}).TimeLimit(); got <= 30*time.Minute {
		t.Errorf("all: %s, too short for some 15 minutes on a calm machine", got)
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
