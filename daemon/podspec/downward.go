package podspec

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// SplitSubscript splits a field path of the downward API such as metadata.labels['app']. ok is false for a path without
// a subscript.
func SplitSubscript(path string) (field, key string, ok bool) {
	inner, closed := strings.CutSuffix(path, "']")
	if !closed {
		return "", "", false
	}
	field, key, ok = strings.Cut(inner, "['")
	return field, key, ok && field != ""
}

// FormatMap returns labels or annotations as the downward API shows them: lines of key="escaped value", sorted by key.
func FormatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}
