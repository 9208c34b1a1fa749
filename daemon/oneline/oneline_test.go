package oneline

import (
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for text, want := range map[string]string{
		"as it is":                   "as it is",
		"a\nb\x1b[31m":               "a b [31m",
		"a\xffb":                     "a\ufffdb",
		strings.Repeat("x", 16):      "xxxxxxxxxxxxxxxx",
		strings.Repeat("x", 17):      "xxxxxxxxxxxxx...",
		"x" + strings.Repeat("é", 8): "x" + strings.Repeat("é", 6) + "...",
		strings.Repeat("é", 9):       strings.Repeat("é", 6) + "...",
	} {
		if got := Of(text, 16); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
