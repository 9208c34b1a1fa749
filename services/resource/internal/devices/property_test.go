package devices

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// world does things at random with a book.
type world struct {
	*testing.T
	rand *rand.Rand
	book *Book
	now  time.Time
	pods map[string]*corev1.Pod
	// open are the devices that are kept.
	open []*Kept
	// listed are the healthy devices by resource.
	listed map[string]sets.Set[string]
	// given is how often devices were given, made how many pods there were.
	given, made int
}

var worldResources = []string{full("a"), full("b")}

// No device is given to two pods, or twice in one but after an init container. In the end all are free.
func TestNoDeviceIsGivenTwice(t *testing.T) {
	given := 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{
				T: t, rand: rand.New(rand.NewPCG(seed, seed)), book: New(), now: begin,
				pods: map[string]*corev1.Pod{}, listed: map[string]sets.Set[string]{},
			}
			for range 200 {
				w.step()
				w.check()
			}
			w.end()
			given += w.given
		})
	}
	if given < 1000 {
		t.Errorf("devices were given only %d times: the test tries nothing", given)
	}
}

func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.rand.IntN(40)) * time.Second)
	name := worldResources[w.rand.IntN(len(worldResources))]
	switch n := w.rand.IntN(20); {
	case n < 3:
		w.list(name)
	case n == 3:
		w.book.Away(name, w.now)
		w.listed[name] = sets.New[string]()
	case n == 4:
		w.book.Expire(w.now)
	case n < 8 && len(w.pods) > 0:
		uid := w.anyPod()
		w.book.Release(uid)
		delete(w.pods, uid)
	case n < 11:
		w.answer()
	default:
		w.assign()
	}
}

func (w *world) list(name string) {
	var list []Device
	w.listed[name] = sets.New[string]()
	for i := range w.rand.IntN(12) {
		d := Device{ID: fmt.Sprint(i), Healthy: w.rand.IntN(5) > 0}
		for node := range 3 {
			if w.rand.IntN(4) == 0 {
				d.Nodes = append(d.Nodes, node)
			}
		}
		if d.Healthy {
			w.listed[name].Insert(d.ID)
		}
		list = append(list, d)
	}
	w.book.Listed(name, list)
}

func (w *world) anyPod() string {
	uids := sets.New[string]()
	for uid := range w.pods {
		uids.Insert(uid)
	}
	return sets.List(uids)[w.rand.IntN(len(uids))]
}

// answer has a plugin answer, or fail.
func (w *world) answer() {
	if len(w.open) == 0 {
		return
	}
	i := w.rand.IntN(len(w.open))
	k := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	if w.rand.IntN(4) == 0 {
		w.book.Drop(k)
		return
	}
	_, there := w.pods[k.PodUID]
	if taken := w.book.Confirm(k, []byte("x")); taken != there {
		w.Fatalf("%v is confirmed: %v, and its pod is there: %v", k, taken, there)
	}
}

// assign gives a pod something: a new one, or one that has something already.
func (w *world) assign() {
	var uid string
	if len(w.pods) == 0 || len(w.pods) < 4 && w.rand.IntN(4) == 0 {
		w.made++
		uid = fmt.Sprint("pod", w.made)
		w.pods[uid] = w.newPod(uid)
	} else {
		uid = w.anyPod()
	}
	needs := w.book.Needs(w.pods[uid])
	if len(needs) == 0 {
		return
	}
	q := Request{Pod: w.pods[uid], Need: needs[w.rand.IntN(len(needs))]}
	if w.rand.IntN(2) == 0 {
		q.Affinity = []int{w.rand.IntN(3)}
	}
	before, err := w.book.Pick(q)
	if err != nil {
		return
	}
	var preferred []string
	for range w.rand.IntN(4) {
		preferred = append(preferred, fmt.Sprint(w.rand.IntN(14)))
	}
	k, err := w.book.Keep(q, preferred)
	switch {
	case err != nil:
		w.Fatalf("picked %v, but not kept: %v", before, err)
	case k == nil && before.Size != 0:
		w.Fatalf("picked %v, but nothing is kept", before)
	case k != nil:
		w.kept(q, k, before, preferred)
	}
}

func (w *world) kept(q Request, k *Kept, choice Choice, preferred []string) {
	w.given++
	w.open = append(w.open, k)
	got := sets.New(k.IDs...)
	switch {
	case got.Len() != q.Count || len(k.IDs) != q.Count:
		w.Fatalf("%v wants %d and gets %v", q.Need, q.Count, k.IDs)
	case !got.HasAll(choice.Fixed...):
		w.Fatalf("gets %v without what is fixed: %v", k.IDs, choice)
	case !sets.New(choice.Available()...).IsSuperset(got):
		w.Fatalf("gets %v, which isn't available: %v", k.IDs, choice)
	case !w.listed[q.Resource].IsSuperset(got):
		w.Fatalf("gets %v, which aren't healthy devices: %v", k.IDs, w.listed[q.Resource])
	}
	liked := sets.New(preferred...).Intersection(sets.New(choice.Among...))
	if open := q.Count - len(choice.Fixed); liked.Len() > 0 && open > 0 {
		if n := got.Intersection(liked).Len(); n != min(open, liked.Len()) {
			w.Fatalf("gets %v of %v, though the plugin prefers %v", k.IDs, choice, preferred)
		}
	}
}

func (w *world) newPod(uid string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID = types.UID(uid)
	always := corev1.ContainerRestartPolicyAlways
	for i := range 2 + w.rand.IntN(4) {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		c.Resources.Limits = corev1.ResourceList{}
		for _, name := range worldResources {
			c.Resources.Limits[corev1.ResourceName(name)] = *resource.NewQuantity(w.rand.Int64N(4), resource.DecimalSI)
		}
		switch w.rand.IntN(3) {
		case 0:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case 1:
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

// check looks at who has what.
func (w *world) check() {
	for _, name := range worldResources {
		owner := map[string]string{}
		for uid, pod := range w.pods {
			running := map[string]string{} // when this one runs
			for c, plain := range containers(pod) {
				for id := range w.book.assigned(uid, c.Name, name) {
					if other, taken := owner[id]; taken && other != uid {
						w.Fatalf("%s of %s is of the pods %s and %s", id, name, other, uid)
					}
					owner[id] = uid
					if other, taken := running[id]; taken {
						w.Fatalf("%s of %s is of the containers %s and %s of %s", id, name, other, c.Name, uid)
					}
					if !plain {
						running[id] = c.Name
					}
				}
			}
		}
	}
}

// end ends all pods, after it has compared a copy of the book.
func (w *world) end() {
	other := New()
	other.Adopt(w.book.Export())
	for _, uid := range w.book.Pods() {
		was, is := w.book.Assigned(uid), other.Assigned(uid)
		if len(was) != len(is) {
			w.Fatalf("after a restart %s has %v, before it had %v", uid, is, was)
		}
		for container, list := range was {
			for i := range list {
				list[i].Healthy = true // as long as no plugin is back
			}
			if !reflect.DeepEqual(list, is[container]) {
				w.Fatalf("after a restart %s in %s has %v, before it had %v", container, uid, is[container], list)
			}
		}
	}
	for uid := range w.pods {
		w.book.Release(uid)
	}
	if left := w.book.Pods(); len(left) > 0 {
		w.Fatalf("something is left of %v", left)
	}
	for _, name := range worldResources {
		w.list(name)
		pod := &corev1.Pod{}
		pod.Spec.Containers = []corev1.Container{{Name: "c"}}
		if healthy := w.listed[name]; healthy.Len() > 0 {
			k, err := w.book.Keep(Request{Pod: pod, Need: Need{Container: "c", Resource: name, Count: healthy.Len()}}, nil)
			if err != nil || !healthy.Equal(sets.New(k.IDs...)) {
				w.Fatalf("of %v are %v, %v free", healthy, k, err)
			}
		}
		w.book.Release("")
	}
}
