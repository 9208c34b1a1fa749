package objects

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestRefs(t *testing.T) {
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(`
metadata: {namespace: ns, name: p}
spec:
  imagePullSecrets: [{name: pull}, {name: ""}]
  initContainers:
  - {name: i, envFrom: [{secretRef: {name: init}}]}
  containers:
  - name: a
    envFrom: [{configMapRef: {name: all}}, {secretRef: {name: init}}]
    env:
    - {name: PLAIN, value: x}
    - {name: FIELD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: KEY, valueFrom: {configMapKeyRef: {name: one, key: k}}}
    - {name: SECRET, valueFrom: {secretKeyRef: {name: two, key: k}}}
  ephemeralContainers:
  - {name: e, env: [{name: KEY, valueFrom: {configMapKeyRef: {name: late, key: k}}}]}
`), &pod); err != nil {
		t.Fatal(err)
	}
	r := refsOf(&pod)
	for _, c := range []struct {
		got  []string
		want []string
	}{
		{names(r, false), []string{"ns/all", "ns/late", "ns/one"}},
		{names(r, true), []string{"ns/init", "ns/pull", "ns/two"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("got %v, want %v", c.got, c.want)
		}
	}
}

func names(r refs, secrets bool) []string {
	set := r.configMaps
	if secrets {
		set = r.secrets
	}
	var list []string
	for _, k := range keys(set) {
		list = append(list, k.String())
	}
	slices.Sort(list)
	return list
}
