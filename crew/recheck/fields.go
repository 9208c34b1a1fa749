package recheck

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mostFields bounds how many fields a difference names.
const mostFields = 6

// changes says how b differs from a, field by field.
func changes(a, b any) string {
	fields := fieldsThatDiffer(a, b)
	var parts []string
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if len(parts) == mostFields {
			parts = append(parts, fmt.Sprintf("and %d more", len(fields)-mostFields))
			break
		}
		parts = append(parts, path+"="+fields[path])
	}
	return strings.Join(parts, ", ")
}

// fieldsThatDiffer are the fields of b, as in its JSON, that differ from those of a.
func fieldsThatDiffer(a, b any) map[string]string {
	left, right := leaves(a), leaves(b)
	fields := map[string]string{}
	for path, value := range right {
		if left[path] != value {
			fields[path] = value
		}
	}
	for path := range left {
		if _, ok := right[path]; !ok {
			fields[path] = "absent"
		}
	}
	return fields
}

// leaves are the scalar fields of a value by their paths. Elements of lists are named by their type or name, if they
// have one.
func leaves(v any) map[string]string {
	found := map[string]string{}
	var value any
	data, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &value)
	}
	if err != nil {
		return map[string]string{"": err.Error()}
	}
	collect(value, "", found)
	return found
}

func collect(value any, path string, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			collect(member, strings.TrimPrefix(path+"."+key, "."), into)
		}
	case []any:
		for i, item := range v {
			collect(item, fmt.Sprintf("%s[%s]", path, nameOf(item, i)), into)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}

// nameOf names an element of a list.
func nameOf(item any, index int) string {
	if object, ok := item.(map[string]any); ok {
		for _, key := range []string{"type", "name", "id"} {
			if name, ok := object[key].(string); ok {
				return name
			}
		}
	}
	return fmt.Sprint(index)
}
