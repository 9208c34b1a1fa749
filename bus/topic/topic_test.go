package topic_test

import (
	"strings"
	"testing"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// A subject belongs to one topic only, or a reader of one would get the other's messages.
func TestSubjectsAreDistinct(t *testing.T) {
	all := topic.All()
	for i, a := range all {
		for _, b := range all[i+1:] {
			x, y := strings.Split(bus.Filter(a), "."), strings.Split(bus.Filter(b), ".")
			if len(x) != len(y) {
				continue
			}
			same := true
			for j := range x {
				same = same && (x[j] == y[j] || x[j] == "*" || y[j] == "*")
			}
			if same {
				t.Errorf("%s and %s share subjects", a.Name(), b.Name())
			}
		}
	}
}

func TestSpecsAreComplete(t *testing.T) {
	for _, tp := range topic.All() {
		if tp.Schema() < 1 || !strings.HasSuffix(tp.Doc(), ".") {
			t.Errorf("%s needs a schema version and a sentence that says what it states", tp.Name())
		}
		if tp.PerDaemon() && tp.Keys() != "<daemon>" {
			t.Errorf("%s is written by every daemon, so its key must be <daemon>", tp.Name())
		}
	}
}
