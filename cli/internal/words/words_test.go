package words

import (
	"testing"
	"time"
)

func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain \"quoted\"":          "plain \"quoted\"",
		"one\ntwo\r\n\n  three \n":  "one | two | three",
		"a\tb":                      "a b",
		"it says \"no\" \x1b[2J\n":  "it says \"no\" \\x1b[2J",
		"right \u202e to left":      "right \\u202e to left",
		"broken \xff byte":          "broken \\xff byte",
		"back\\slash and\nnew line": "back\\slash and | new line",
		"größe":                     "größe",
		"\n":                        "",
	} {
		if got := OneLine(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	for text, want := range map[string]string{
		"one\ntwo\tthree\n":           "one\ntwo\tthree\n",
		"\x1b[2J\x07\n\x1b]0;a\x07\n": "\\x1b[2J\\a\n\\x1b]0;a\\a\n",
		"a\r\nb \u202e \xff":          "a\\r\nb \\u202e \\xff",
	} {
		if got := Lines(text); got != want {
			t.Errorf("%q became %q; want %q", text, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		text, want string
		most       int
	}{{"short", "short", 5}, {"längere Wörter", "längere...", 11}, {"", "", 3}} {
		if got := Clip(c.text, c.most); got != c.want {
			t.Errorf("%q with %d is %q; want %q", c.text, c.most, got, c.want)
		}
	}
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1500 * time.Nanosecond: "2µs", 1500 * time.Microsecond: "2ms", 1234 * time.Millisecond: "1.23s", time.Hour: "1h0m0s",
	} {
		if got := Brief(d); got != want {
			t.Errorf("%d ns is %s; want %s", d, got, want)
		}
	}
	if got := Age(-time.Second); got != "0s" {
		t.Errorf("what lies ahead is %s old", got)
	}
	if Plural(1, "pod") != "1 pod" || Plural(0, "pod") != "0 pods" {
		t.Error("plural")
	}
}
