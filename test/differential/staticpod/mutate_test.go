package staticpod

import (
	"encoding/json"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"kubelot.dev/services/podsync/podsynctest"
)

// stricter are the verdicts in which kubelot refuses on purpose what the kubelet takes.
var stricter = []string{
	"metadata.uid", // it names cgroups and bus subjects
}

// TestVerdictsAsUpstream changes a pod that uses most fields at one or two random places, thousands of times. What the
// kubelet runs, kubelot must run. The other way round some gaps are known (package manifest, "Not validated"): their
// share is bounded here, so that it doesn't grow unseen.
func TestVerdictsAsUpstream(t *testing.T) {
	const seed, rounds, maxGaps = 7, 3000, 0.01
	data, err := os.ReadFile("testdata/rich.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewSource(seed))
	refused, gaps, shown := 0, map[string]int{}, 0
	for range rounds {
		var tree map[string]any
		if err := json.Unmarshal(doc, &tree); err != nil {
			t.Fatal(err)
		}
		for range 1 + r.Intn(2) {
			mutate(r, tree)
		}
		changed, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		_, wantErr := upstream(changed)
		_, _, gotErr := podsynctest.Pod(changed, podsynctest.Origin{File: file, NodeName: node})
		if wantErr != nil {
			refused++
		}
		switch {
		case wantErr == nil && gotErr != nil && !onPurpose(gotErr):
			if t.Errorf("the kubelet runs this, kubelot says: %v", gotErr); shown < 5 {
				t.Logf("%s", changed)
			}
			shown++
		case wantErr != nil && gotErr == nil:
			gaps[strings.SplitN(wantErr.Error(), ": ", 2)[0]]++
		}
	}
	n := 0
	for where, k := range gaps {
		n += k
		t.Logf("%4d not refused: %s", k, where)
	}
	t.Logf("%d of %d were refused, %d of them not by kubelot", refused, rounds, n)
	if float64(n) > maxGaps*float64(refused) {
		t.Errorf("kubelot runs %d of %d manifests that the kubelet refuses", n, refused)
	}
}

func onPurpose(err error) bool {
	return slices.ContainsFunc(stricter, func(s string) bool { return strings.Contains(err.Error(), s) })
}

// mutate changes one random place of the tree.
func mutate(r *rand.Rand, tree map[string]any) {
	var places []func()
	var walk func(v any, set func(any), remove func())
	walk = func(v any, set func(any), remove func()) {
		switch v := v.(type) {
		case map[string]any:
			keys := make([]string, 0, len(v))
			for k := range v {
				keys = append(keys, k)
			}
			slices.Sort(keys)
			for _, k := range keys {
				walk(v[k], func(x any) { v[k] = x }, func() { delete(v, k) })
			}
		case []any:
			for i := range v {
				walk(v[i], func(x any) { v[i] = x }, nil)
			}
			if set != nil && len(v) > 0 {
				places = append(places, func() { set(append(slices.Clone(v), v[r.Intn(len(v))])) }, func() { set(v[1:]) })
			}
		default:
			places = append(places, func() { set(other(r, v)) })
		}
		if remove != nil {
			places = append(places, remove)
		}
	}
	walk(tree, nil, nil)
	places[r.Intn(len(places))]()
}

// other is another scalar of the same kind.
func other(r *rand.Rand, v any) any {
	switch v := v.(type) {
	case float64:
		return []any{-1, 0, 1, 65, 65536, 1 << 31, v + 1}[r.Intn(7)]
	case bool:
		return !v
	case string:
		return []any{
			"", "x", "X_y", "a/b", "/abs", "../up", "1.2.3.4", strings.Repeat("n", 64), "Always", "Never", "TCP",
			"ClusterFirst", "NoSchedule", "a b", "100m", "main",
		}[r.Intn(16)]
	}
	return v
}
