package statefile

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

const gi = 1 << 30

// author draws lives by chance.
type author struct {
	*rand.Rand
	life
	t       *testing.T
	kubelet *kubelet
}

// newLife is always the same for a seed, of about so many pods.
func newLife(t *testing.T, seed int64, length int) life {
	a := &author{Rand: rand.New(rand.NewSource(seed)), t: t}
	a.Reserved, a.Pods = map[int]map[corev1.ResourceName]uint64{}, map[string]*corev1.Pod{}
	for i := range 1 + a.Intn(4) {
		// There may be numbers that no node has. All nodes have pages of the same sizes, which the kubelet takes for granted.
		id := i + i/2*a.Intn(2)
		if len(a.Nodes) > 0 {
			id = max(id, a.Nodes[len(a.Nodes)-1].ID+1)
		}
		a.Nodes = append(a.Nodes, lifeNode{ID: id, Memory: uint64(6+a.Intn(9)) * gi, HugePages: map[uint64]uint64{
			gi: uint64(a.Intn(4)), 2 << 20: uint64(a.Intn(3) * 256),
		}})
		a.Reserved[id] = map[corev1.ResourceName]uint64{corev1.ResourceMemory: gi}
		if a.Intn(2) == 0 {
			a.Reserved[id]["hugepages-1Gi"] = min(uint64(a.Intn(2)), a.Nodes[i].HugePages[gi]) * gi
		}
	}
	a.kubelet = newKubelet(t, &a.life)
	for range length {
		a.next()
	}
	return a.life
}

func (a *author) step(s step) *step {
	a.kubelet.do(&s)
	a.Steps = append(a.Steps, s)
	return &s
}

// next lets a pod come, or one go, or the daemon restart.
func (a *author) next() {
	var here []string
	for uid := range a.kubelet.state.GetMemoryAssignments() {
		here = append(here, uid)
	}
	slices.Sort(here)
	switch n := a.Intn(8); {
	case n == 0:
		a.step(step{Do: "restart"})
		for _, uid := range here { // the kubelet admits them again
			a.step(step{Do: "podHints", Pod: uid})
		}
	case n < 4 && len(here) > 0:
		a.step(step{Do: "release", Pod: here[a.Intn(len(here))]})
	default:
		a.admit()
	}
}

func (a *author) admit() {
	uid := fmt.Sprint("pod-", len(a.Pods))
	pod := a.pod(uid)
	a.Pods[uid] = pod
	a.step(step{Do: "podHints", Pod: uid})
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		hints := a.step(step{Do: "hints", Pod: uid, Container: c.Name}).Hints["memory"]
		s := step{Do: "allocate", Pod: uid, Container: c.Name, Affinity: a.affinity(hints)}
		if a.step(s).Error != "" {
			a.step(step{Do: "release", Pod: uid})
			return
		}
	}
	if a.Intn(3) == 0 { // again, as after a restart; between a pod's containers, the kubelet loses memory by it
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			a.step(step{Do: "allocate", Pod: uid, Container: c.Name})
		}
	}
	if a.Intn(2) == 0 {
		a.step(step{Do: "starting", Pod: uid, Container: pod.Spec.Containers[0].Name})
	}
}

// affinity is one that the topology manager might choose: none, one of the hints, or less or other nodes than these. It
// is never a part of a group, of which the kubelet and kubelot make different things.
func (a *author) affinity(hints []hint) hint {
	h := hint{Preferred: a.Intn(2) == 0}
	switch n := a.Intn(4); {
	case n == 0:
		return h
	case n < 3 && len(hints) > 0:
		return hints[a.Intn(len(hints))]
	}
	for _, n := range a.Nodes {
		if a.Intn(2) == 0 {
			h.Nodes = append(h.Nodes, n.ID)
		}
	}
	if len(h.Nodes) > 0 {
		group := a.kubelet.state.GetMachineState()[h.Nodes[0]].Cells
		outside := func(id int) bool { return !slices.Contains(group, id) }
		if len(group) > len(h.Nodes) && !slices.ContainsFunc(h.Nodes, outside) {
			h.Nodes = nil
		}
	}
	return h
}

func (a *author) pod(uid string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	for i := range a.Intn(4) {
		c := a.container(fmt.Sprint("init-", i))
		if a.Intn(3) == 0 {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + a.Intn(3) {
		pod.Spec.Containers = append(pod.Spec.Containers, a.container(fmt.Sprint("main-", i)))
	}
	switch a.Intn(12) {
	case 0:
		delete(pod.Spec.Containers[0].Resources.Limits, corev1.ResourceCPU)
	case 1:
		pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("9"), corev1.ResourceMemory: resource.MustParse("90Gi"),
		}}
	}
	return pod
}

func (a *author) container(name string) corev1.Container {
	list := func(memory, huge, small int) corev1.ResourceList {
		l := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("1"),
			corev1.ResourceMemory: *resource.NewQuantity(int64(memory)*gi/2, resource.BinarySI),
		}
		if huge > 0 {
			l["hugepages-1Gi"] = *resource.NewQuantity(int64(huge-1)*gi, resource.BinarySI)
		}
		if small > 0 {
			l["hugepages-2Mi"] = *resource.NewQuantity(int64(small)<<27, resource.BinarySI)
		}
		return l
	}
	memory, huge, small := 1+a.Intn(12), a.Intn(4), a.Intn(3)
	if a.Intn(5) == 0 {
		memory *= 3
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{
		Requests: list(memory, huge, small), Limits: list(memory, huge, small),
	}}
}
