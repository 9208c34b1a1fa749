package podstatus

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"kubelot.dev/services/podsync/internal/worker/plan/plantest"
)

const twoContainers = `
initContainers:
- {name: setup, image: i, resources: {requests: {cpu: 120m}, limits: {memory: 128Mi}}}
- {name: side, image: i, restartPolicy: Always, resources: {requests: {cpu: 10m, memory: 8Mi}}}
containers:
- {name: app, image: i, resources: {requests: {cpu: 20m, memory: 16Mi, ephemeral-storage: 1Gi}, limits: {cpu: 50m, ephemeral-storage: 2Gi}}}
- {name: other, image: i}
`

const podLevel = `
resources: {requests: {cpu: "0.1", memory: 32Mi}, limits: {memory: 64M}}
overhead: {cpu: 5m}
containers:
- {name: app, image: i, resources: {requests: {cpu: 10m}, limits: {memory: 16Mi}}}
`

func TestPodResources(t *testing.T) {
	for name, c := range map[string]struct {
		spec, cgroup, runtime, allocated, has string
		rejected, ended                       bool
	}{
		"best effort": {
			spec: "containers: [{name: app, image: i}]", runtime: up, cgroup: "{}",
			allocated: "{}", has: "{}",
		},
		"the sums, before it runs": {
			spec: twoContainers, cgroup: "{requests: {cpu: 79m}}",
			allocated: "{cpu: 120m, memory: 24Mi, ephemeral-storage: 1Gi}",
			has: "{requests: {cpu: 120m, memory: 24Mi, ephemeral-storage: 1Gi}, limits: {cpu: 50m, memory: 128Mi, " +
				"ephemeral-storage: 2Gi}}",
		},
		"those of the pod as a whole, with the overhead": {
			spec: podLevel, runtime: up,
			allocated: "{cpu: 105m, memory: 32Mi}",
			has:       "{requests: {cpu: 105m, memory: 32Mi}, limits: {memory: 64M}}",
		},
		"what the cgroup has, while it runs": {
			spec: podLevel, runtime: up, cgroup: "{requests: {cpu: 79m}, limits: {cpu: 200m, memory: 62500Ki}}",
			allocated: "{cpu: 105m, memory: 32Mi}",
			has:       "{requests: {cpu: 79m, memory: 32Mi}, limits: {cpu: 200m, memory: 64M}}",
		},
		"limits that the cgroup doesn't hold it to": {
			spec: twoContainers, runtime: up + "\ncontainer d0 name=side sandbox=s0 state=running\ncontainer o0 name=other " +
				"sandbox=s0 state=running", cgroup: "{requests: {cpu: 118m}}",
			allocated: "{cpu: 120m, memory: 24Mi, ephemeral-storage: 1Gi}",
			has: "{requests: {cpu: 118m, memory: 24Mi, ephemeral-storage: 1Gi}, limits: {cpu: 50m, memory: 128Mi, " +
				"ephemeral-storage: 2Gi}}",
		},
		"the spec's again, once it has ended": {
			spec: podLevel, ended: true,
			runtime:   "sandbox s0\ncontainer a0 name=app sandbox=s0 state=exited started=1s finished=2s",
			cgroup:    "{requests: {cpu: 79m}}",
			allocated: "{cpu: 105m, memory: 32Mi}",
			has:       "{requests: {cpu: 105m, memory: 32Mi}, limits: {memory: 64M}}",
		},
		"none of a rejected pod": {spec: podLevel, rejected: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{
				Pod: plantest.Pod(t, c.spec), Obs: plantest.Observation(t, c.runtime), Rejected: c.rejected,
				Ended: c.ended, Ending: c.ended,
			}
			if c.cgroup != "" {
				in.Cgroup = read[corev1.ResourceRequirements](t, c.cgroup)
			}
			before := in.Pod.DeepCopy()
			s := Compute(in)
			if c.rejected {
				if s.Resources != nil || s.AllocatedResources != nil {
					t.Errorf("has %v, allocated %v", s.Resources, s.AllocatedResources)
				}
				return
			}
			same(t, "allocated", s.AllocatedResources, read[corev1.ResourceList](t, c.allocated))
			same(t, "has", s.Resources, read[corev1.ResourceRequirements](t, c.has))
			same(t, "the pod", in.Pod, before)
		})
	}
}

const up = "sandbox s0 ready ip=10.0.0.2\ncontainer a0 name=app sandbox=s0 state=running started=1s"

func read[T any](t *testing.T, text string) *T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

// same compares what the API server would be sent.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if string(g) != string(w) {
		t.Errorf("%s: %s, want %s", what, g, w)
	}
}
