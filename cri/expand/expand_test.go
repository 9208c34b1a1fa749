package expand

import (
	"strings"
	"testing"
)

func TestReferences(t *testing.T) {
	values := map[string]string{"A": "1", "REF": "$(A)", "EMPTY": "", "a b": "space"}
	lookup := func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
	for in, want := range map[string]string{
		"":                "",
		"plain":           "plain",
		"$(A)":            "1",
		"x$(A)y$(A)":      "x1y1",
		"$(REF)":          "$(A)",
		"$(EMPTY)":        "",
		"$(NONE)":         "$(NONE)",
		"$()":             "$()",
		"$$(A)":           "$(A)",
		"$$$(A)":          "$1",
		"$$$$(A)":         "$$(A)",
		"$A":              "$A",
		"$":               "$",
		"$$":              "$",
		"$(A":             "$(A",
		"$($(A)":          "$($(A)",
		"$(A)$(":          "1$(",
		"$(A))":           "1)",
		"$(a b)":          "space",
		"$\xff$(A)":       "$\xff1",
		"--flag=$(A)$(B)": "--flag=1$(B)",
	} {
		if got := References(in, lookup); got != want {
			t.Errorf("References(%q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzReferences checks what holds for any text: nothing to expand means nothing changes, and doubling every dollar
// sign protects a text.
func FuzzReferences(f *testing.F) {
	for _, seed := range []string{"", "$(A)", "$$", "$($(A)", "a$(A", "$$(A)$(B)$"} {
		f.Add(seed)
	}
	lookup := func(name string) (string, bool) { return "<" + name + ">", name != "" }
	f.Fuzz(func(t *testing.T, text string) {
		got := References(text, lookup)
		if !strings.Contains(text, "$") && got != text {
			t.Errorf("References(%q) = %q", text, got)
		}
		if got := References(strings.ReplaceAll(text, "$", "$$"), lookup); got != text {
			t.Errorf("a protected %q became %q", text, got)
		}
	})
}
