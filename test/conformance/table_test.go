package conformance

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestCompare(t *testing.T) {
	limits, err := parseLimits("limited -- no dummy links\n")
	if err != nil {
		t.Fatal(err)
	}
	passed, failed, skipped, notRun := Result{Outcome: Passed}, Result{Outcome: Failed, Message: "why"},
		Result{Outcome: Skipped}, Result{Outcome: NotRun}
	lost := Result{Outcome: Lost}
	for _, c := range []struct {
		name             string
		spec             string
		kubelot, kubelet Result
		fault            string // part of it
	}{
		{"both pass", "x", passed, passed, ""},
		{"kubelot alone passes", "x", passed, notRun, ""},
		{"kubelot fails what the kubelet passes", "x", failed, passed, "kubelet passes"},
		{"a limit excuses nothing that the kubelet passes", "limited", failed, passed, "kubelet passes"},
		{"kubelot skips what the kubelet passes", "x", skipped, passed, "kubelet passes"},
		{"both skip", "x", skipped, skipped, ""},
		{"a limit of the machine", "limited", failed, failed, ""},
		{"a limit, the kubelet wasn't asked", "limited", failed, notRun, ""},
		{"kubelot fails, the kubelet wasn't asked", "x", failed, notRun, "wasn't asked"},
		{"both fail without a reason", "x", failed, failed, "limits.txt"},
		{"the kubelet fails without a reason", "x", notRun, failed, "limits.txt"},
		{"the kubelet alone fails", "x", passed, failed, ""},
		{"a listed spec passes", "listed", passed, notRun, ""},
		{"a listed spec fails", "listed", failed, notRun, "passes.txt"},
		{"a listed spec is skipped", "listed", skipped, notRun, "passes.txt"},
		{"a listed spec is lost", "listed", lost, notRun, "passes.txt"},
		{"kubelot loses what the kubelet passed", "listed", lost, passed, "kubelet passes"},
		{"both skip a listed spec", "listed", skipped, skipped, "passes.txt"},
		{"a limit excuses no listed spec", "limited and listed", failed, failed, "passes.txt"},
		{"a listed spec isn't run by kubelot", "listed", notRun, passed, ""},
		{"the kubelet's old results don't count", "listed", passed, failed, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kubelot, kubelet := Results{}, Results{}
			if c.kubelot != notRun {
				kubelot[c.spec] = c.kubelot
			}
			if c.kubelet != notRun {
				kubelet[c.spec] = c.kubelet
			}
			rows := Compare(kubelot, kubelet, Rules{Limits: limits, Passes: []string{"limited and listed", "listed"}})
			if len(rows) != 1 || rows[0].Kubelot != c.kubelot || rows[0].Kubelet != c.kubelet {
				t.Fatalf("rows %+v", rows)
			}
			if got := rows[0].Fault; (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
				t.Errorf("fault %q, want %q", got, c.fault)
			}
		})
	}
}

// What kubelot does otherwise on purpose is to be a failure, and nothing else.
func TestDiffersOnPurpose(t *testing.T) {
	differs, err := parseLimits("waits -- a pod waits for its plugin\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kubelot, kubelet Outcome
		fault            string // part of it
	}{
		{Failed, Passed, ""},
		{Failed, NotRun, ""},
		{Passed, Passed, "differs.txt"},
		{Skipped, Passed, "kubelet passes"},
		{Lost, NotRun, "passes.txt"},
		{Failed, Failed, "which it doesn't"},
	} {
		rules := Rules{Differs: differs, Passes: []string{"it waits"}, KubeletToo: true}
		rows := Compare(Results{"it waits": {Outcome: c.kubelot}}, Results{"it waits": {Outcome: c.kubelet}}, rules)
		if got := rows[0].Fault; (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
			t.Errorf("kubelot %s, kubelet %s: fault %q, want %q", c.kubelot, c.kubelet, got, c.fault)
		}
		var out strings.Builder
		if err := WriteTable(&out, rows); err != nil || !strings.Contains(out.String(), "differs: a pod waits for its") {
			t.Errorf("table (error %v):\n%s", err, out.String())
		}
	}
}

func TestKubeletIsHeldToTheList(t *testing.T) {
	for outcome, want := range map[Outcome]int{Passed: 0, Failed: 1, Skipped: 1, Lost: 1} {
		rules := Rules{Passes: []string{"listed"}, KubeletToo: true}
		rows := Compare(Results{"listed": {Outcome: Passed}}, Results{"listed": {Outcome: outcome}}, rules)
		if got := Faults(rows); got != want {
			t.Errorf("%s: %d faults, want %d: %+v", outcome, got, want, rows)
		}
	}
}

func TestTable(t *testing.T) {
	rows := Compare(
		Results{"a good": {Outcome: Passed}, "z bad": {Outcome: Failed, Message: "\nboom\nat x.go"}},
		Results{"a good": {Outcome: Passed}, "z bad": {Outcome: Passed}}, Rules{})
	var out strings.Builder
	if err := WriteTable(&out, rows); err != nil {
		t.Fatal(err)
	}
	want := "kubelot  kubelet  spec\n" +
		"FAILED   passed   z bad\n" +
		"                  wrong: the kubelet passes it here\n" +
		"                  kubelot: boom\n" +
		"passed   passed   a good\n"
	if out.String() != want {
		t.Errorf("table:\n%s\nwant:\n%s", out.String(), want)
	}
	if Faults(rows) != 1 {
		t.Errorf("%d faults, want 1", Faults(rows))
	}
	if got := Summary(rows); !strings.HasPrefix(got, "kubelot: 2 specs, 1 passed, 1 failed, 0 skipped, 0 lost\n") {
		t.Errorf("summary %q", got)
	}
}

func TestScopeFlags(t *testing.T) {
	for _, c := range []struct {
		scope Scope
		want  []string // beginnings
	}{
		{Scope{Suite: Cluster()}, []string{"--label-filter=Conformance", `--focus=\[sig-node\]|`}},
		{Scope{Suite: Cluster(), Quick: true}, []string{"--label-filter=Conformance", `--focus=\[sig-node\]|`, "--skip=Probing"}},
		{Scope{Suite: Cluster(), Focus: "Probing"}, []string{"--label-filter=Conformance", "--focus=Probing"}},
	} {
		got := c.scope.Flags()
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%+v: %q, want %q", c.scope, got, c.want)
		}
		for _, flag := range got[1:] {
			_, expression, _ := strings.Cut(flag, "=")
			if _, err := regexp.Compile(expression); err != nil {
				t.Errorf("%+v: %v", c.scope, err)
			}
		}
	}
}
