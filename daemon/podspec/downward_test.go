package podspec

import "testing"

func TestSplitSubscript(t *testing.T) {
	for path, want := range map[string]struct {
		field, key string
		ok         bool
	}{
		"metadata.labels['app']":    {"metadata.labels", "app", true},
		"metadata.labels['']":       {"metadata.labels", "", true},
		"metadata.labels['a['b']']": {"metadata.labels", "a['b']", true},
		"metadata.labels":           {},
		"metadata.labels['app":      {},
		"metadata.labels']":         {},
		"['app']":                   {},
		"":                          {},
	} {
		field, key, ok := SplitSubscript(path)
		if ok != want.ok || ok && (field != want.field || key != want.key) {
			t.Errorf("%q: %q, %q, %v; want %+v", path, field, key, ok, want)
		}
	}
}

func TestFormatMap(t *testing.T) {
	got := FormatMap(map[string]string{"b": "two\nlines \"quoted\"", "a": ""})
	if want := "a=\"\"\nb=\"two\\nlines \\\"quoted\\\"\""; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := FormatMap(nil); got != "" {
		t.Errorf("got %q for nothing", got)
	}
}
