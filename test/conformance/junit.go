package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// Outcome is how a spec ended.
type Outcome string

// The outcomes. NotRun is a spec that the other agent ran, or that nobody asked for; Lost is one that passes.txt names
// and the scope asks for, and that the suite didn't run all the same.
const (
	NotRun  Outcome = "-"
	Passed  Outcome = "passed"
	Skipped Outcome = "skipped" // the spec found that it can't run here, and said why
	Failed  Outcome = "FAILED"
	Lost    Outcome = "LOST"
)

// short tells an agent that was asked and didn't pass.
func (o Outcome) short() bool { return o == Failed || o == Skipped || o == Lost }

// Result is how a spec went for one agent.
type Result struct {
	Outcome Outcome
	Seconds float64
	Message string // why it failed or was skipped
}

// Results are an agent's, by the specs' full names.
type Results map[string]Result

// Report is what one run of the suite wrote.
type Report struct {
	Results Results
	// EndedEarly is ginkgo's reason for not having run the suite to its end, such as its time limit; else empty.
	EndedEarly string
}

// The parts of ginkgo's JUnit files that matter here.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string  `xml:"name,attr"`
		Tests    int     `xml:"tests,attr"`
		Skipped  int     `xml:"skipped,attr"`
		Failures int     `xml:"failures,attr"`
		Time     float64 `xml:"time,attr"`
		// Properties tell of the suite as a whole.
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Name    string       `xml:"name,attr"`
		Class   string       `xml:"classname,attr"`
		Status  string       `xml:"status,attr"`
		Time    float64      `xml:"time,attr"`
		Skipped *junitDetail `xml:"skipped,omitempty"`
		Error   *junitDetail `xml:"error,omitempty"`
		Failure *junitDetail `xml:"failure,omitempty"`
		Output  string       `xml:"system-err,omitempty"`
	}
	junitDetail struct {
		Message string `xml:"message,attr,omitempty"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",chardata"`
	}
)

// askedFor tells a spec that was chosen from one that the flags left out, of which ginkgo says "skipped" alone.
func (c junitCase) askedFor() bool {
	return c.Status != "pending" && (c.Skipped == nil || c.Skipped.Message != "skipped")
}

// name is the spec's full name. A suite's set-up and tear-down have names of their own, such as
// [SynchronizedBeforeSuite].
func (c junitCase) name() string { return strings.TrimPrefix(c.Name, "[It] ") }

func (c junitCase) result() Result {
	for _, detail := range []*junitDetail{c.Error, c.Failure} {
		if detail != nil {
			return Result{Outcome: Failed, Seconds: c.Time, Message: strings.TrimSpace(detail.Message + " " + detail.Text)}
		}
	}
	switch c.Status {
	case "passed":
		return Result{Outcome: Passed, Seconds: c.Time}
	case "skipped":
		return Result{Outcome: Skipped, Seconds: c.Time, Message: strings.TrimPrefix(c.Skipped.text(), "skipped - ")}
	default: // interrupted, timed out, panicked: ginkgo adds a detail to all it knows today
		return Result{Outcome: Failed, Seconds: c.Time, Message: c.Status}
	}
}

func (d *junitDetail) text() string {
	if d == nil {
		return ""
	}
	return d.Message
}

// Failures are the specs that failed, in order.
func (r Results) Failures() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r)), func(spec string) bool { return r[spec].Outcome != Failed })
}

// ReadJUnit reads the results of one run, the specs that weren't asked for left out. A suite's set-up counts when it
// failed.
func ReadJUnit(path string) (Report, error) {
	suites, err := readSuites(path)
	if err != nil {
		return Report{}, err
	}
	report := Report{Results: Results{}}
	for _, suite := range suites.Suites {
		for _, p := range suite.Properties {
			if p.Name == "SpecialSuiteFailureReason" && p.Value != "" {
				report.EndedEarly = p.Value
			}
		}
		for _, c := range suite.Cases {
			spec := strings.HasPrefix(c.Name, "[It] ")
			result := c.result()
			if c.askedFor() && (spec || result.Outcome == Failed) {
				report.Results[c.name()] = result
			}
		}
	}
	return report, nil
}

// Check is an error unless the specs' results explain how ginkgo ended: it exits with 1 when specs failed, and also
// when it gave up itself.
func (r Report) Check(exitCode int) error {
	failed := len(r.Results.Failures())
	switch {
	case r.EndedEarly != "":
		return fmt.Errorf("the suite ended early: %s; %d specs had ended, %d of them failed", r.EndedEarly,
			len(r.Results), failed)
	case exitCode == 0, exitCode == 1 && failed > 0:
		return nil
	default:
		return fmt.Errorf("ginkgo ended with exit code %d (-1: by a signal) and %d failed specs, which don't explain it",
			exitCode, failed)
	}
}

func readSuites(path string) (junitSuites, error) {
	var suites junitSuites
	data, err := os.ReadFile(path)
	if err != nil {
		return suites, fmt.Errorf("read results: %w", err)
	}
	if err := xml.Unmarshal(data, &suites); err != nil {
		return suites, fmt.Errorf("read results %s: %w", path, err)
	}
	return suites, nil
}

// Shorten copies a JUnit file without the thousands of specs that weren't asked for.
func Shorten(from string, to io.Writer) error {
	suites, err := readSuites(from)
	if err != nil {
		return err
	}
	for i := range suites.Suites {
		suite := &suites.Suites[i]
		var kept []junitCase
		for _, c := range suite.Cases {
			if c.askedFor() {
				kept = append(kept, c)
			}
		}
		suite.Skipped -= len(suite.Cases) - len(kept)
		suite.Cases, suite.Tests = kept, len(kept)
	}
	encoder := xml.NewEncoder(to)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suites); err != nil {
		return fmt.Errorf("shorten %s: %w", from, err)
	}
	return nil
}

// Worst joins the results of several runs: a spec has passed if it always did.
func Worst(runs ...Results) Results {
	worst := Results{}
	for _, run := range runs {
		for spec, result := range run {
			before, seen := worst[spec]
			if !seen || rank(result.Outcome) > rank(before.Outcome) {
				worst[spec] = result
			}
		}
	}
	return worst
}

func rank(o Outcome) int {
	switch o {
	case Lost:
		return 4
	case Failed:
		return 3
	case Skipped:
		return 2
	case Passed:
		return 1
	default:
		return 0
	}
}
