package text

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestWriter(t *testing.T) {
	var b strings.Builder
	w := NewWriter(&b)
	w.Family("empty", Gauge, "Never seen.")
	w.Family("a", Counter, "Seen.")
	w.Sample(Pairs("x", "1\"\\\n", "y", "ü").And(`z="3"`), 1.5e9, time.UnixMilli(1234))
	w.Sample("", math.NaN(), time.Time{})
	w.Sample("", 0, time.Time{})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "# HELP a Seen.\n# TYPE a counter\na{x=\"1\\\"\\\\\\n\",y=\"ü\",z=\"3\"} 1.5e+09 1234\na 0\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("gone") }

func TestACallerThatIsGone(t *testing.T) {
	w := NewWriter(broken{})
	w.Family("a", Gauge, "")
	for range 10000 {
		w.Sample("", 1, time.Time{})
	}
	if w.Flush() == nil {
		t.Error("the loss isn't told")
	}
}
