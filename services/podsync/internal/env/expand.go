package env

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Expand replaces $(NAME) in text by lookup's value. "$$" stands for "$", so "$$(NAME)" gives the text
// "$(NAME)"; a reference whose name lookup doesn't know stays as it is. What was put in isn't expanded again.
//
// Source: Kubernetes API reference, EnvVar.value and Container.command.
func Expand(text string, lookup func(name string) (value string, ok bool)) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String()
		case strings.HasPrefix(rest, "$"):
			out.WriteByte('$')
			text = rest[1:]
		case strings.HasPrefix(rest, "("):
			name, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = rest[1:]
				continue
			}
			if value, ok := lookup(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = after
		default:
			out.WriteByte('$')
			text = rest
		}
	}
}

// Lookup makes a function for Expand from a resolved environment.
func Lookup(vars []*runtimeapi.KeyValue) func(name string) (string, bool) {
	values := make(map[string]string, len(vars))
	for _, v := range vars {
		values[v.Key] = string(v.Value)
	}
	return func(name string) (string, bool) {
		value, ok := values[name]
		return value, ok
	}
}

// ExpandSubPath expands a volume mount's subPathExpr. Every variable in it must be there and not empty, for
// otherwise the mount would be of another directory than the user meant.
//
// Source: KEP-559.
func ExpandSubPath(expr string, vars []*runtimeapi.KeyValue) (string, error) {
	lookup := Lookup(vars)
	var missing []string
	path := Expand(expr, func(name string) (string, bool) {
		value, _ := lookup(name)
		if value == "" && !slices.Contains(missing, name) {
			missing = append(missing, name)
		}
		return value, true
	})
	if len(missing) > 0 {
		slices.Sort(missing)
		return "", fmt.Errorf("missing value for %s", strings.Join(missing, ", "))
	}
	return path, nil
}
