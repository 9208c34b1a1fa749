package cpus

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/machine"
)

// grid is a machine of so many sockets, NUMA nodes per socket, cores per node and threads per core.
func grid(sockets, nodes, cores, threads int) machine.Topology {
	m := machine.Topology{CPUs: map[int]machine.CPU{}}
	all := sockets * nodes * cores
	for t := range threads {
		for i := range all {
			m.CPUs[t*all+i] = machine.CPU{Socket: i / (nodes * cores), Node: i / cores, Cache: i / (nodes * cores), Core: i}
		}
	}
	return m
}

func set(t *testing.T, list string) cpuset.CPUSet {
	t.Helper()
	s, err := cpuset.Parse(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// static is a state with the reserved CPUs and the options.
func static(t *testing.T, m machine.Topology, reserved string, options ...string) *State {
	t.Helper()
	cfg := Config{
		Machine: m, Policy: PolicyStatic, Reserved: set(t, reserved), AlphaOptions: true, BetaOptions: true,
		Options: map[string]string{},
	}
	for _, o := range options {
		cfg.Options[o] = "true"
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// pod is a Guaranteed pod whose containers are given as name=CPUs, the name beginning with init, sidecar or app.
func pod(uid string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}
	for _, text := range containers {
		name, cpus, _ := strings.Cut(text, "=")
		list := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpus), corev1.ResourceMemory: resource.MustParse("1Gi"),
		}
		c := corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list, Limits: list}}
		if strings.HasPrefix(name, "app") {
			p.Spec.Containers = append(p.Spec.Containers, c)
			continue
		}
		if strings.HasPrefix(name, "sidecar") {
			always := corev1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return p
}

// run allocates all containers and answers what they have, and the error of the first that got none.
func run(s *State, p *corev1.Pod) (string, error) {
	var got []string
	for c := range podspec.InitAndMain(&p.Spec) {
		cpus, err := s.Allocate(p, c, 0)
		if err != nil {
			return strings.Join(got, " "), err
		}
		got = append(got, c.Name+"="+cpus.String())
	}
	return strings.Join(got, " "), nil
}

// broken says what is wrong with the state: a CPU that is lost, or that two have. ends are the init containers that
// pass their CPUs on.
func (s *State) broken(ends func(pod types.UID, container string) bool) error {
	all := s.shared.Union(s.exclusive())
	if s.options.strict {
		all = all.Union(s.reserved)
	}
	if !all.Equals(s.machine.All()) {
		return fmt.Errorf("of %s, %s are shared or somebody's", s.machine.All(), all)
	}
	if both := s.shared.Intersection(s.exclusive()); both.Size() > 0 {
		return fmt.Errorf("%s are shared and somebody's", both)
	}
	if reserved := s.reserved.Intersection(s.exclusive()); reserved.Size() > 0 {
		return fmt.Errorf("%s are reserved and somebody's", reserved)
	}
	type holder struct {
		pod       types.UID
		container string
	}
	owner := map[int]holder{}
	for pod, list := range s.entries {
		for name, cpus := range list {
			for _, id := range cpus.List() {
				other, ok := owner[id]
				if ok && (other.pod != pod || !ends(pod, name) && !ends(pod, other.container)) {
					return fmt.Errorf("%d is %v's and %s's %s", id, other, pod, name)
				}
				if !ok || ends(pod, other.container) {
					owner[id] = holder{pod, name}
				}
			}
		}
	}
	return nil
}
