package cpus

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
)

// Released is an entry that wasn't adopted: the container shares CPUs now, until its pod is allocated again.
type Released struct {
	Pod       types.UID
	Container string
	CPUs      cpuset.CPUSet
	// Why is a sentence without subject: what is wrong with these CPUs.
	Why string
}

// Adopt takes over the entries of a state that was saved under the policy of that name, and answers what it left out.
// Entries that the state had are forgotten. Only what would give a CPU to two owners is left out: a container that has
// half a core keeps it even where only whole cores are given away by now.
func (s *State) Adopt(policy string, saved Entries) []Released {
	s.entries = Entries{}
	owner := map[int]types.UID{}
	var released []Released
	for _, pod := range slices.Sorted(maps.Keys(saved)) {
		for _, name := range slices.Sorted(maps.Keys(saved[pod])) {
			cpus := saved[pod][name]
			if why := s.unfit(policy, pod, cpus, owner); why != "" {
				released = append(released, Released{Pod: pod, Container: name, CPUs: cpus, Why: why})
				continue
			}
			if s.entries[pod] == nil {
				s.entries[pod] = map[string]cpuset.CPUSet{}
			}
			s.entries[pod][name] = cpus
			for _, id := range cpus.UnsortedList() {
				owner[id] = pod
			}
		}
	}
	if s.static {
		s.share()
	}
	return released
}

// unfit says why a pod's container can't keep the CPUs; owner has those that were adopted.
func (s *State) unfit(policy string, pod types.UID, cpus cpuset.CPUSet, owner map[int]types.UID) string {
	if !s.static {
		return fmt.Sprintf("the policy is %s now", PolicyNone)
	}
	if policy != PolicyStatic {
		return fmt.Sprintf("they were saved under the policy %q", policy)
	}
	if cpus.IsEmpty() {
		return "there are none"
	}
	if gone := cpus.Difference(s.machine.All()); gone.Size() > 0 {
		return fmt.Sprintf("%s aren't there any more, or are offline", gone)
	}
	if reserved := cpus.Intersection(s.reserved); reserved.Size() > 0 {
		return fmt.Sprintf("%s are reserved now", reserved)
	}
	for _, id := range cpus.List() {
		if other, ok := owner[id]; ok && other != pod {
			return fmt.Sprintf("%d is the pod %s's", id, other)
		}
	}
	return ""
}
