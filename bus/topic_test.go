package bus

import (
	"strings"
	"testing"
)

func TestSubjects(t *testing.T) {
	keyed := NewState[int](Spec{Name: "a.b", Keys: "<x>.<y>"})
	single := NewState[int](Spec{Name: "a.c"})
	if got := Filter(keyed); got != "a.b.*.*" {
		t.Errorf("got the filter %s, want a.b.*.*", got)
	}
	if got := Filter(single); got != "a.c" {
		t.Errorf("got the filter %s, want a.c", got)
	}
	tests := []struct {
		topic info
		key   string
		want  string // empty for an error
	}{
		{keyed.info, Key("1", "2"), "a.b.1.2"},
		{keyed.info, "1", ""},
		{keyed.info, "1.2.3", ""},
		{keyed.info, "1.", ""},
		{keyed.info, "", ""},
		{keyed.info, "1.*", ""},
		{keyed.info, "1.>", ""},
		{keyed.info, "1.x y", ""},
		{keyed.info, "1.x\r\nPUB", ""},
		{single.info, "", "a.c"},
		{single.info, "1", ""},
	}
	for _, test := range tests {
		got, err := test.topic.subject(test.key)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("key %q: got %q, %v; want %q", test.key, got, err, test.want)
		}
		if err == nil && test.topic.keyOf(got) != test.key {
			t.Errorf("the key of %s is %q, want %q", got, test.topic.keyOf(got), test.key)
		}
	}
}

// No key makes a subject that a reader of another topic could get, or that breaks the protocol.
func FuzzSubject(f *testing.F) {
	f.Add("1.2")
	f.Add("*.>")
	f.Add("\n.\r")
	keyed := NewState[int](Spec{Name: "a.b", Keys: "<x>.<y>"})
	f.Fuzz(func(t *testing.T, key string) {
		subject, err := keyed.subject(key)
		if err != nil {
			return
		}
		if strings.ContainsAny(subject, "*> \t\r\n") || strings.Count(subject, ".") != 3 || strings.Contains(subject, "..") {
			t.Fatalf("the key %q became %q", key, subject)
		}
	})
}
