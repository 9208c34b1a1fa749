package conformance

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const sampleJUnit = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="6" disabled="0" errors="0" failures="1" time="12.5">
<testsuite name="Kubernetes e2e suite" tests="6" skipped="3" failures="1" time="12.5">
  <testcase name="[SynchronizedBeforeSuite] " classname="c" status="passed" time="0.1"></testcase>
  <testcase name="[It] [sig-node] good" classname="c" status="passed" time="1.5"></testcase>
  <testcase name="[It] [sig-node] bad" classname="c" status="failed" time="2"><failure type="failed">too late&#xA;at x.go:1</failure><system-err>its log</system-err></testcase>
  <testcase name="[It] [sig-node] unfit" classname="c" status="skipped" time="0"><skipped message="skipped - needs 2 nodes"></skipped></testcase>
  <testcase name="[It] [sig-node] not asked for" classname="c" status="skipped" time="0"><skipped message="skipped"></skipped></testcase>
  <testcase name="[It] [sig-node] cut off" classname="c" status="interrupted" time="9"><error message="interrupted" type="interrupted">stack</error></testcase>
</testsuite>
</testsuites>`

func sample(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadJUnit(t *testing.T) {
	report, err := ReadJUnit(sample(t, sampleJUnit))
	if err != nil {
		t.Fatal(err)
	}
	if report.EndedEarly != "" {
		t.Errorf("ended early: %q", report.EndedEarly)
	}
	results := report.Results
	want := Results{
		"[sig-node] good":    {Outcome: Passed, Seconds: 1.5},
		"[sig-node] bad":     {Outcome: Failed, Seconds: 2, Message: "too late\nat x.go:1"},
		"[sig-node] unfit":   {Outcome: Skipped, Message: "needs 2 nodes"},
		"[sig-node] cut off": {Outcome: Failed, Seconds: 9, Message: "interrupted stack"},
	}
	for spec, result := range want {
		if results[spec] != result {
			t.Errorf("%s: %+v, want %+v", spec, results[spec], result)
		}
	}
	if len(results) != len(want) {
		t.Errorf("%d results, want %d: %v", len(results), len(want), results)
	}
}

// A suite whose set-up failed has run no spec; that must not look like success.
func TestReadJUnitFailedSetUp(t *testing.T) {
	text := strings.Replace(sampleJUnit, `status="passed" time="0.1">`,
		`status="failed" time="0.1"><failure type="failed">no node</failure>`, 1)
	report, err := ReadJUnit(sample(t, text))
	if err != nil || report.Results["[SynchronizedBeforeSuite] "].Outcome != Failed {
		t.Errorf("report %v (error %v), want the failed set-up in it", report, err)
	}
}

// A suite that reached its time limit has left specs out, which its JUnit file shows like those that the flags left
// out.
func TestReadJUnitEndedEarly(t *testing.T) {
	const head = `time="12.5">
  `
	text := strings.Replace(sampleJUnit, head+"<testcase",
		head+`<properties><property name="SuiteSucceeded" value="false"></property>`+
			`<property name="SpecialSuiteFailureReason" value="Suite Timeout Elapsed"></property></properties><testcase`, 1)
	path := sample(t, text)
	report, err := ReadJUnit(path)
	if err != nil || report.EndedEarly != "Suite Timeout Elapsed" {
		t.Errorf("report %v (error %v), want the time limit", report, err)
	}
	var out bytes.Buffer
	if err := Shorten(path, &out); err != nil || !strings.Contains(out.String(), "Suite Timeout Elapsed") {
		t.Errorf("shortened (error %v) to:\n%s", err, out.String())
	}
}

func TestCheck(t *testing.T) {
	passed, failed := Results{"a": {Outcome: Passed}}, Results{"a": {Outcome: Failed}}
	for _, c := range []struct {
		name   string
		report Report
		code   int
		err    string // part of it
	}{
		{"all passed", Report{Results: passed}, 0, ""},
		{"specs failed", Report{Results: failed}, 1, ""},
		{"the time limit", Report{Results: failed, EndedEarly: "Suite Timeout Elapsed"}, 1, "Suite Timeout Elapsed"},
		{
			"the time limit after the last spec",
			Report{Results: passed, EndedEarly: "Suite Timeout Elapsed"},
			1,
			"Suite Timeout Elapsed",
		},
		{"a failure without a failed spec", Report{Results: passed}, 1, "exit code 1 "},
		{"specs focused in the source", Report{Results: passed}, 197, "exit code 197"},
		{"another code besides failed specs", Report{Results: failed}, 2, "exit code 2"},
		{"killed", Report{Results: failed}, -1, "exit code -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.report.Check(c.code); (err == nil) != (c.err == "") || err != nil &&
				!strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
		})
	}
}

func TestReadJUnitErrors(t *testing.T) {
	if _, err := ReadJUnit(sample(t, "<testsuites><testsuite>")); err == nil {
		t.Error("no error for a file that breaks off")
	}
	if _, err := ReadJUnit(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no error for a missing file")
	}
}

func TestShortenKeepsWhatWasAskedFor(t *testing.T) {
	path := sample(t, sampleJUnit)
	before, err := ReadJUnit(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Shorten(path, &out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "not asked for") || !strings.Contains(out.String(), "its log") {
		t.Errorf("shortened to:\n%s", out.String())
	}
	if !strings.Contains(out.String(), `tests="5" skipped="2" failures="1"`) {
		t.Errorf("counts are wrong:\n%s", out.String())
	}
	after, err := ReadJUnit(sample(t, out.String()))
	if err != nil || len(after.Results) != len(before.Results) {
		t.Errorf("read back %v (error %v), want %v", after, err, before)
	}
}

func TestWorst(t *testing.T) {
	worst := Worst(
		Results{
			"a": {Outcome: Passed}, "b": {Outcome: Failed, Message: "first"}, "c": {Outcome: Passed},
			"d": {Outcome: Lost},
		},
		Results{"a": {Outcome: Skipped}, "b": {Outcome: Passed}, "c": {Outcome: Passed}, "d": {Outcome: Failed}},
	)
	if worst["a"].Outcome != Skipped || worst["b"].Message != "first" || worst["c"].Outcome != Passed ||
		worst["d"].Outcome != Lost {
		t.Errorf("Worst = %v", worst)
	}
}

func TestFailuresAreRunAlone(t *testing.T) {
	failed := Results{
		"[sig-node] b (x)": {Outcome: Failed}, "[sig-node] a": {Outcome: Failed},
		"[sig-node] c": {Outcome: Passed},
	}.Failures()
	if want := []string{"[sig-node] a", "[sig-node] b (x)"}; !slices.Equal(failed, want) {
		t.Fatalf("failures %q, want %q", failed, want)
	}
	focus := regexp.MustCompile(Alone(Cluster(), failed).Focus)
	for text, want := range map[string]bool{
		"suite [sig-node] a": true, "suite [sig-node] b (x)": true,
		"suite [sig-node] a too": false, "suite [sig-node] c": false,
	} {
		if focus.MatchString(text) != want {
			t.Errorf("%q is run: %v, want %v", text, !want, want)
		}
	}
}
