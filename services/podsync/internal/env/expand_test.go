package env

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExpand(t *testing.T) {
	lookup := Lookup([]*runtimeapi.KeyValue{
		{Key: "A", Value: []byte("1")}, {Key: "REF", Value: []byte("$(A)")}, {Key: "EMPTY"}, {Key: "a b", Value: []byte("space")},
	})
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
		if got := Expand(in, lookup); got != want {
			t.Errorf("Expand(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestExpandSubPath(t *testing.T) {
	vars := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("x")}, {Key: "EMPTY"}}
	if got, err := ExpandSubPath("logs/$(A)", vars); err != nil || got != "logs/x" {
		t.Errorf("got %q, %v", got, err)
	}
	_, err := ExpandSubPath("$(Z)/$(EMPTY)/$(A)", vars)
	if err == nil || err.Error() != "missing value for EMPTY, Z" {
		t.Errorf("got %v", err)
	}
}

// FuzzExpand checks what holds for any text: nothing to expand means nothing changes, and doubling every dollar
// sign protects a text.
func FuzzExpand(f *testing.F) {
	for _, seed := range []string{"", "$(A)", "$$", "$($(A)", "a$(A", "$$(A)$(B)$"} {
		f.Add(seed)
	}
	lookup := func(name string) (string, bool) { return "<" + name + ">", name != "" }
	f.Fuzz(func(t *testing.T, text string) {
		got := Expand(text, lookup)
		if !strings.Contains(text, "$") && got != text {
			t.Errorf("Expand(%q) = %q", text, got)
		}
		if got := Expand(strings.ReplaceAll(text, "$", "$$"), lookup); got != text {
			t.Errorf("a protected %q became %q", text, got)
		}
	})
}

// FuzzEnvFile checks that any file is either refused or read the same way for every key.
func FuzzEnvFile(f *testing.F) {
	for _, seed := range []string{"A='x'\nB='y'", "A='\n'", "#\n\nA= 'x'", "A='x' # y\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, found, err := parseEnvFile(text, "\x00no such key")
		if found && err == nil && !strings.Contains(text, "\x00no such key") {
			t.Errorf("found a key that isn't in %q", text)
		}
		if err == nil {
			if value, ok, err := parseEnvFile(text, "A"); err != nil || (ok && !strings.Contains(text, value)) {
				t.Errorf("%q: %q, %v", text, value, err)
			}
		}
	})
}
