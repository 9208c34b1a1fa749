package resource

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/numa"
)

// two starts the daemon on a machine of two NUMA nodes with four CPUs each that can be had: 1-4 and 6-9.
func (b *bed) two(scope string) {
	b.stop()
	b.policy, b.perNode, b.reserved = cpus.PolicyStatic, 5, cpuset.New(0, 5)
	b.align = numa.Config{
		Policy: numa.PolicySingleNUMANode, Scope: scope, Nodes: []machine.Node{{ID: 0}, {ID: 1}},
	}
	b.start()
}

// asks makes a pod with a container for each text, such as "cpu=2 gpu=1".
func asks(uid string, containers ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	for i, text := range containers {
		list := corev1.ResourceList{"memory": resource.MustParse("1Mi")}
		for word := range strings.FieldsSeq(text) {
			name, q, _ := strings.Cut(word, "=")
			if name != "cpu" {
				name = "vendor.example/" + name
			}
			list[corev1.ResourceName(name)] = resource.MustParse(q)
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprint("c", i), Resources: corev1.ResourceRequirements{Limits: list, Requests: list},
		})
	}
	return pod
}

// come states pods that come together, the first one first.
func (b *bed) come(pods ...*corev1.Pod) {
	b.t.Helper()
	for i, pod := range pods {
		if err := b.pods.Set(string(pod.UID), topic.Pod{
			Pod: pod, Lifecycle: topic.Syncing, Allocates: true, FirstSeen: time.Unix(int64(i+1), 0),
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	synctest.Wait()
}

// release ends what hangs.
func (b *bed) release(what string) {
	b.mu.Lock()
	close(b.hang[what])
	delete(b.hang, what)
	b.mu.Unlock()
	synctest.Wait()
}

// nodes are the NUMA nodes of what the pod has; device g3 is near to node 3.
func (b *bed) nodes(uid string, containers ...string) (nodes []int) {
	for name, c := range b.allocation(uid).Containers {
		if len(containers) > 0 && !slices.Contains(containers, name) {
			continue
		}
		for _, what := range has(b.t, c) {
			if id, err := strconv.Atoi(what); err == nil {
				nodes = append(nodes, id/5)
			} else {
				nodes = append(nodes, int(what[1]-'0'))
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// has are the CPUs and devices of a container.
func has(t *testing.T, c topic.ContainerAllocation) (all []string) {
	t.Helper()
	set, err := cpuset.Parse(c.CPUs)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range set.List() {
		all = append(all, strconv.Itoa(id))
	}
	for _, d := range c.Devices {
		all = append(all, d.ID)
	}
	return all
}

// on has the plugin of gpu list devices, by their NUMA nodes.
func (b *bed) on(nodes ...int) {
	r := deviceplugin.Report{Resource: gpu}
	for i, node := range nodes {
		id := fmt.Sprintf("g%d%c", node, 'a'+i)
		r.Devices = append(r.Devices, devices.Device{ID: id, Healthy: true, Nodes: []int{node}})
	}
	b.service.report(b.t.Context(), r)
	synctest.Wait()
}

// A pod that comes while the plugin of an earlier one is asked takes nothing that the earlier one is aligned to.
func TestNoPodComesBetweenTheContainersOfAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.two("pod")
		b.on(0, 1)
		b.hang[gpu] = make(chan struct{})
		b.come(asks("a", "cpu=2 gpu=1", "cpu=2"))
		b.come(asks("c", "cpu=2"))
		b.says("c", "allocated")
		b.release(gpu)
		b.says("a", "allocated")
		if got := b.nodes("a"); len(got) != 1 {
			t.Errorf("it is of the NUMA nodes %v: %+v", got, b.allocation("a").Containers)
		}
	})
}

func TestNoPodTakesTheDevicesThatAnotherIsAlignedTo(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.two("container")
		b.on(0, 0, 1, 1)
		b.hang["preferred "+gpu] = make(chan struct{})
		b.come(asks("a", "cpu=2 gpu=1"))
		b.come(asks("c", "gpu=2"))
		b.says("c", "allocating: waiting for device plugins to allocate its devices")
		b.release("preferred " + gpu)
		b.says("a", "allocated")
		b.says("c", "allocated")
		if got := b.nodes("a"); len(got) != 1 {
			t.Errorf("it is of the NUMA nodes %v: %+v", got, b.allocation("a").Containers)
		}
	})
}

// What a plugin prefers for the first container may be what was reserved for the second one.
func TestAPluginPrefersAmongAllThatItsPodGets(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0", "g1", "g2")
		b.come(asks("a", "gpu=1", "gpu=1"))
		b.says("a", "allocated")
		if got := b.calls(); !slices.Equal(got, []string{"Allocate " + gpu + " g2", "Allocate " + gpu + " g1"}) {
			t.Errorf("asked %q", got)
		}
	})
}

// Of a pod that is refused nothing is held back from the next one.
func TestARefusedPodKeepsNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.lists(gpu, "g0")
		b.static()
		b.come(asks("a", "cpu=2 gpu=1", "cpu=2 gpu=1"), asks("b", "cpu=3 gpu=1"))
		b.lists(gpu, "g0")
		if a := b.allocation("a"); a.Phase != topic.AllocationRefused {
			t.Errorf("got %+v", a)
		}
		b.says("b", "allocated")
	})
}

// Pods come and go at random, the daemon restarts, and the plugin is slow at random: each pod is aligned, nobody has
// what another has, and a restart changes nothing of what pods have.
func TestPodsThatComeTogether(t *testing.T) {
	for seed := range uint64(30) {
		scope := []string{"pod", "container"}[seed%2]
		t.Run(fmt.Sprintf("%d, scope %s", seed, scope), func(t *testing.T) {
			inBubble(t, func(b *bed) { b.crowd(rand.New(rand.NewPCG(seed, 7)), scope) })
		})
	}
}

func (b *bed) crowd(r *rand.Rand, scope string) {
	b.two(scope)
	b.on(0, 0, 0, 1, 1, 1)
	alive, given := map[string]*corev1.Pod{}, 0
	for round := range 12 {
		for _, what := range []string{gpu, "preferred " + gpu} {
			if r.IntN(2) == 0 {
				b.hang[what] = make(chan struct{})
			}
		}
		var pods []*corev1.Pod
		for i := range 1 + r.IntN(4) {
			var containers []string
			for range 1 + r.IntN(2) {
				containers = append(containers, fmt.Sprintf("cpu=%d gpu=%d", 1+r.IntN(2), r.IntN(3)))
			}
			pod := asks(fmt.Sprintf("pod%d-%d", round, i), containers...)
			alive[string(pod.UID)] = pod
			pods = append(pods, pod)
		}
		b.come(pods...)
		if r.IntN(4) == 0 {
			before := b.allocated(alive)
			b.stop()
			b.start()
			b.on(0, 0, 0, 1, 1, 1)
			after := b.allocated(alive)
			for uid, had := range before {
				if has := after[uid]; !reflect.DeepEqual(has, had) {
					b.t.Errorf("after a restart %s has %+v, and had %+v", uid, has, had)
				}
			}
		}
		for what := range b.hang {
			b.release(what)
		}
		if b.settled(alive, scope); b.t.Failed() {
			return
		}
		for _, pod := range pods {
			if b.allocation(string(pod.UID)).Phase == topic.Allocated {
				given++
			}
		}
		for uid, pod := range alive {
			if r.IntN(3) == 0 || b.allocation(uid).Phase != topic.Allocated {
				b.state(pod, topic.Terminated)
				delete(alive, uid)
			}
		}
	}
	if given < 6 {
		b.t.Errorf("%d pods got what they asked for in 12 rounds", given)
	}
}

// allocated is what those of the pods have that have got what they asked for.
func (b *bed) allocated(pods map[string]*corev1.Pod) map[string]map[string]topic.ContainerAllocation {
	all := map[string]map[string]topic.ContainerAllocation{}
	for uid := range pods {
		if a := b.allocation(uid); a.Phase == topic.Allocated {
			all[uid] = a.Containers
		}
	}
	return all
}

// settled fails unless each pod is aligned or refused, and nothing has two owners.
func (b *bed) settled(alive map[string]*corev1.Pod, scope string) {
	b.t.Helper()
	owner := map[string]string{}
	for uid, pod := range alive {
		a := b.allocation(uid)
		if a.Phase == topic.AllocationRefused {
			continue
		}
		if a.Phase != topic.Allocated {
			b.t.Errorf("%s is %s: %s", uid, a.Phase, a.Message)
		}
		if got := b.nodes(uid); scope == "pod" && len(got) != 1 {
			b.t.Errorf("%s is of the NUMA nodes %v: %+v", uid, got, a.Containers)
		}
		for _, c := range pod.Spec.Containers {
			if got := b.nodes(uid, c.Name); len(got) != 1 {
				b.t.Errorf("%s of %s is of the NUMA nodes %v: %+v", c.Name, uid, got, a.Containers)
			}
			for _, what := range has(b.t, a.Containers[c.Name]) {
				if other, taken := owner[what]; taken {
					b.t.Errorf("%s is of %s and of %s", what, other, uid)
				}
				owner[what] = uid
			}
		}
	}
}

// Of pods that wait for the same the earliest gets it. Of those that came together it is the one that was created
// first.
func TestPodsAreAssignedInTheOrderOfArrival(t *testing.T) {
	few := func() (pods []*corev1.Pod) {
		for _, uid := range []string{"e", "b", "f", "a", "d", "c"} {
			pods = append(pods, asks(uid, "gpu=1"))
		}
		return pods
	}
	gets := func(b *bed, first string) {
		b.t.Helper()
		for _, pod := range few() {
			want := topic.AllocationRefused
			if string(pod.UID) == first {
				want = topic.Allocated
			}
			if a := b.allocation(string(pod.UID)); a.Phase != want {
				b.t.Errorf("%s is %s, want %s: %s", pod.UID, a.Phase, want, a.Message)
			}
		}
	}
	t.Run("the plugin comes back", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			b.stop()
			b.start()
			b.come(few()...)
			b.lists(gpu, "g0")
			gets(b, "e")
		})
	})
	t.Run("the plugin was gone when it was asked", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			b.fail = deviceplugin.ErrAway
			for _, pod := range few() {
				b.come(pod)
				time.Sleep(100 * time.Millisecond)
			}
			b.mu.Lock()
			b.fail = nil
			b.mu.Unlock()
			b.lists(gpu, "g0")
			gets(b, "a") // all were first seen at the same time
		})
	})
	t.Run("they were created one after the other", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.lists(gpu, "g0")
			b.stop()
			b.start()
			for i, pod := range few() {
				pod.CreationTimestamp = metav1.Unix(int64(100-i), 0)
				b.come(pod)
			}
			b.lists(gpu, "g0")
			gets(b, "c")
		})
	})
	t.Run("the daemon was started again", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.stop()
			b.policy = cpus.PolicyStatic
			for seen, uid := range []string{"b", "a"} { // the earlier one is told of later
				if err := b.pods.Set(uid, topic.Pod{
					Pod: asks(uid, "cpu=3"), Lifecycle: topic.Syncing, Allocates: true, FirstSeen: time.Unix(int64(9-seen), 0),
				}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			b.start()
			b.says("a", "allocated")
		})
	})
}
