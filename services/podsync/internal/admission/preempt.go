package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/daemon/podspec"
)

// Reason and message of pods that make room for a critical one, as the kubelet has them.
const (
	ReasonPreempting  = "Preempting"
	MessagePreempting = "Preempted in order to admit critical pod"
	// MessageDisrupting is that of the DisruptionTarget condition.
	MessageDisrupting = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Victims are the active pods that must end so that a critical pod, rejected for lack of resources, fits: as few and
// as unimportant as possible. None means that the rejection stands.
func Victims(pod *corev1.Pod, r *Rejection, active []Held) []*corev1.Pod {
	if r == nil || len(r.short) == 0 || !critical(pod) {
		return nil
	}
	need := map[corev1.ResourceName]int64{}
	for _, s := range r.short {
		need[s.name] = s.missing()
	}
	var candidates []candidate
	for _, p := range active {
		if p.Pod.UID != pod.UID && yields(p.Pod, pod) {
			candidates = append(candidates, candidate{pod: p.Pod, frees: freed(p), class: classRank(p.Pod)})
		}
	}
	all := maps.Clone(need)
	for _, c := range candidates {
		subtract(all, c)
	}
	if len(all) > 0 {
		return nil
	}
	return spare(need, pick(need, candidates))
}

// Passes reports whether the end of other pods may be all that the pod needs.
func (r *Rejection) Passes() bool { return len(r.short) > 0 || r.Reason == reasonNodePorts }

// Lacks is the first resource that the node lacks for the pod; empty where something else is amiss.
func (r *Rejection) Lacks() string {
	if len(r.short) == 0 {
		return ""
	}
	return string(r.short[0].name)
}

// candidate is a pod that may have to go.
type candidate struct {
	pod   *corev1.Pod
	frees map[corev1.ResourceName]int64
	class int
}

// yields reports whether victim must make room for pod.
func yields(victim, pod *corev1.Pod) bool {
	if !critical(victim) {
		return true
	}
	return !static(victim) && victim.Spec.Priority != nil && pod.Spec.Priority != nil &&
		*pod.Spec.Priority > *victim.Spec.Priority
}

func classRank(pod *corev1.Pod) int {
	return slices.Index([]corev1.PodQOSClass{corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed},
		podspec.QOSClass(pod))
}

// freed is what the end of a pod gives back.
func freed(p Held) map[corev1.ResourceName]int64 {
	frees := maps.Clone(p.requests)
	frees[corev1.ResourcePods] = 1
	return frees
}

// subtract takes off need what a candidate gives back.
func subtract(need map[corev1.ResourceName]int64, c candidate) {
	for name, n := range need {
		if n -= c.frees[name]; n > 0 {
			need[name] = n
		} else {
			delete(need, name)
		}
	}
}

// pick takes candidates until the need is met. The least important class comes first, and within a class the candidate
// that leaves the smallest need.
func pick(need map[corev1.ResourceName]int64, candidates []candidate) []candidate {
	left := maps.Clone(need)
	var picked []candidate
	for class := 0; class <= 2 && len(left) > 0; class++ {
		of := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.class != class })
		for len(of) > 0 && len(left) > 0 {
			best := 0
			for i := range of {
				if d, b := distance(left, of[i]), distance(left, of[best]); d < b || d == b && smaller(of[i], of[best]) {
					best = i
				}
			}
			if helps(left, of[best]) {
				subtract(left, of[best])
				picked = append(picked, of[best])
			}
			of = slices.Delete(of, best, best+1)
		}
	}
	return picked
}

// helps reports whether a candidate gives back anything of the need.
func helps(need map[corev1.ResourceName]int64, c candidate) bool {
	for name := range need {
		if c.frees[name] > 0 {
			return true
		}
	}
	return false
}

// distance is how much of the need remains without a candidate, each resource weighed alike.
func distance(need map[corev1.ResourceName]int64, c candidate) float64 {
	var d float64
	for name, n := range need {
		if rest := float64(n - c.frees[name]); rest > 0 {
			d += rest / float64(n) * rest / float64(n)
		}
	}
	return d
}

func smaller(a, b candidate) bool {
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceCPU} {
		if a.frees[name] != b.frees[name] {
			return a.frees[name] < b.frees[name]
		}
	}
	return false
}

// spare lets those go free that turn out not to be needed, the most important first.
func spare(need map[corev1.ResourceName]int64, picked []candidate) []*corev1.Pod {
	for i := len(picked) - 1; i >= 0; i-- {
		left := maps.Clone(need)
		for j, c := range picked {
			if j != i {
				subtract(left, c)
			}
		}
		if len(left) == 0 {
			picked = slices.Delete(picked, i, i+1)
		}
	}
	var victims []*corev1.Pod
	for _, c := range picked {
		victims = append(victims, c.pod)
	}
	return victims
}
