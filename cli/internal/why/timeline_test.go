package why

import (
	"strings"
	"testing"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/paint"
)

// A long text is read once, whatever stands before it.
func TestLongTextsAreShownOnce(t *testing.T) {
	const long = "failed to pull and unpack image: something that is really long and says what is wrong"
	var seen shownOnce
	for _, c := range []struct{ text, want string }{
		{"reported: " + long, "reported: " + long},
		{"ensure image failed: " + long, "ensure image failed: [as above]"},
		{"Back-off: ErrImagePull: " + long, "Back-off: ErrImagePull: [as above]"},
		{long, "[as above]"},
		{"a short text", "a short text"},
		{"a short text", "a short text"},
		{"another thing is wrong", "another thing is wrong"},
		{"x" + long, "xfailed to pull and unpack image: [as above]"},
	} {
		if got := seen.text(c.text); got != c.want {
			t.Errorf("%q is shown as %q; want %q", c.text, got, c.want)
		}
	}
}

// Events that say what a step's failure says are left out; others aren't.
func TestEventsThatRepeat(t *testing.T) {
	failures := []string{`secret "db" not found`, "dial tcp 10.0.0.1:443: connect: connection refused and more of it"}
	for message, want := range map[string]bool{
		`Error: secret "db" not found`: true, "Error: ErrImagePull": true, "Error: something else is wrong": false,
		"Failed to pull image \"x\": " + failures[1]: true,
	} {
		if got := repeats(topic.Event{Reason: "Failed", Message: message}, failures); got != want {
			t.Errorf("%q: %v", message, got)
		}
	}
	if repeats(topic.Event{Reason: "Unhealthy", Message: failures[1]}, failures) {
		t.Error("a probe's Event is left out")
	}
	if repeats(topic.Event{Reason: "Failed", Message: "Error: ErrImagePull"}, nil) {
		t.Error("without a failed step the Event is all there is")
	}
}

// What others say has one line and moves no cursor.
func TestTextIsPlain(t *testing.T) {
	w := well(t, plain)
	w.step(1, "create sandbox", "", topic.StepEnd, "line one\nline two \x1b[31m")
	a := Explain(w, topic.Ref{Namespace: "default", Name: "web", UID: "u1"}, noon)
	text := Text(a, noon, paint.Painter{})
	if strings.Contains(text, "\x1b") || !strings.Contains(text, "line one | line two") {
		t.Errorf("%q", text)
	}
}
