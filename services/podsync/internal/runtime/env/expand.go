package env

import (
	"fmt"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"kubelot.dev/cri/expand"
)

// Lookup makes a function for expand.References from a resolved environment.
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
	path := expand.References(expr, func(name string) (string, bool) {
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
