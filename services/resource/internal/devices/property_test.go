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
	// open is what is kept, for a pod each.
	open []*Reservation
	// listed are the healthy devices by resource.
	listed map[string]sets.Set[string]
	// given is how often devices were given, made how many pods there were.
	given, made int
}

var worldResources = []string{full("a"), full("b")}

// No device is given to two pods, or twice in one but after an init container, and a restart at any point changes
// nothing of that. In the end all are free.
func TestNoDeviceIsGivenTwice(t *testing.T) {
	given := 0
	for seed := range uint64(100) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{
				T: t, rand: rand.New(rand.NewPCG(seed, seed)), book: New(), now: begin,
				pods: map[string]*corev1.Pod{}, listed: map[string]sets.Set[string]{},
			}
			for range 1000 {
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
	case n < 12:
		w.answer()
	case n == 12:
		w.restart()
	case n < 16:
		w.reserve()
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

// answer has a plugin say what it prefers, and answer, or fail.
func (w *world) answer() {
	if len(w.open) == 0 {
		return
	}
	i := w.rand.IntN(len(w.open))
	r := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	first := r.kept[0]
	_, there := w.pods[string(first.Pod.UID)]
	healthy := w.listed[first.Resource].HasAll(first.ids...)
	_, err := r.Offer()
	if offered := err == nil; offered != there && (offered || healthy) {
		w.Fatalf("%v is offered something: %v, and its pod is there: %v", first, err, there)
	}
	if err == nil {
		err = w.prefer(r, healthy)
	}
	if err != nil || w.rand.IntN(4) == 0 {
		r.Drop()
		return
	}
	if taken := r.Confirm([]byte("x")); taken != there {
		w.Fatalf("%v is confirmed: %v, and its pod is there: %v", first, taken, there)
	}
	if r.Next() != "" {
		w.open = append(w.open, r)
	}
}

// prefer has nobody get fewer devices that are near, as long as those that were kept for the first are healthy.
func (w *world) prefer(r *Reservation, healthy bool) error {
	before, stale := r.kept, r.kept[0].assignment.before
	var nearBefore []int
	for _, k := range before {
		nearBefore = append(nearBefore, r.near(k))
	}
	ids, err := r.Prefer(w.preferred())
	first := r.kept[0]
	if err != nil {
		if healthy {
			w.Fatalf("%v can't have what was kept for it: %v", first, err)
		}
		return err
	}
	if !w.listed[first.Resource].HasAll(ids...) || len(ids) != first.Count {
		w.Fatalf("%v is to get %v, of which are healthy: %v", first.Need, ids, w.listed[first.Resource])
	}
	if stale != nil && !sets.New(stale.ids()...).Equal(sets.New(ids...)) {
		w.Fatalf("%v gets %v, and had %v before the reboot", first.Need, ids, stale.ids())
	}
	for i, k := range r.kept {
		if n := r.near(k); healthy && n < nearBefore[i] {
			w.Fatalf("%v gets %v, of which %d are near; %d were kept", k.Need, k.ids, n, nearBefore[i])
		}
	}
	return nil
}

func (w *world) preferred() (ids []string) {
	for range w.rand.IntN(4) {
		ids = append(ids, fmt.Sprint(w.rand.IntN(14)))
	}
	return ids
}

// reserve keeps all that a pod wants for it.
func (w *world) reserve() {
	uid := w.somePod()
	r := w.book.Reserve()
	for _, need := range w.book.Needs(w.pods[uid]) {
		if err := r.Keep(w.request(uid, need)); err != nil {
			r.Drop()
			return
		}
	}
	if w.given += len(r.kept); r.Next() != "" {
		w.open = append(w.open, r)
	}
}

// restart begins anew with what is on the disk, perhaps after a reboot. Who was asked for something isn't any more.
func (w *world) restart() {
	saved := w.book.Export()
	for _, r := range w.open {
		r.Drop()
	}
	if dropped := w.book.Export(); !reflect.DeepEqual(dropped.PodDeviceEntries, saved.PodDeviceEntries) {
		w.Fatalf("on the disk is %v; without what plugins are asked for it is %v", saved, dropped)
	}
	if w.rand.IntN(3) == 0 {
		for uid := range w.pods {
			saved.Stale[uid] = true
		}
	}
	next := New()
	next.Adopt(saved)
	w.same(next)
	w.book, w.open = next, nil
	w.book.Settled(w.now)
	for _, name := range worldResources {
		w.listed[name] = sets.New[string]()
		if w.rand.IntN(3) > 0 {
			w.list(name)
		}
	}
}

// assign gives a pod something: a new one, or one that has something already.
func (w *world) assign() {
	uid := w.somePod()
	needs := w.book.Needs(w.pods[uid])
	if len(needs) == 0 {
		return
	}
	q := w.request(uid, needs[w.rand.IntN(len(needs))])
	before, err := w.book.pick(q)
	if err != nil {
		return
	}
	preferred := w.preferred()
	r := w.book.Reserve()
	switch err := r.keep(q, preferred); {
	case err != nil:
		w.Fatalf("picked %v, but not kept: %v", before, err)
	case r.Next() != "":
		w.kept(r, before, preferred)
	case before.Size != 0:
		w.Fatalf("picked %v, but nothing is kept", before)
	}
}

// somePod is a new pod, or one that has something already.
func (w *world) somePod() string {
	if len(w.pods) > 0 && (len(w.pods) >= 4 || w.rand.IntN(4) > 0) {
		return w.anyPod()
	}
	w.made++
	uid := fmt.Sprint("pod", w.made)
	w.pods[uid] = w.newPod(uid)
	return uid
}

// request is one for what the pod needs, near to a NUMA node or not.
func (w *world) request(uid string, need Need) Request {
	q := Request{Pod: w.pods[uid], Need: need}
	if w.rand.IntN(2) == 0 {
		q.Affinity = []int{w.rand.IntN(3)}
	}
	return q
}

func (w *world) kept(r *Reservation, choice Choice, preferred []string) {
	w.given++
	w.open = append(w.open, r)
	q := r.kept[0]
	got := sets.New(q.ids...)
	switch {
	case got.Len() != q.Count || len(q.ids) != q.Count:
		w.Fatalf("%v wants %d and gets %v", q.Need, q.Count, q.ids)
	case !got.HasAll(choice.Fixed...):
		w.Fatalf("gets %v without what is fixed: %v", q.ids, choice)
	case !sets.New(choice.Available()...).IsSuperset(got):
		w.Fatalf("gets %v, which isn't available: %v", q.ids, choice)
	case !w.listed[q.Resource].IsSuperset(got):
		w.Fatalf("gets %v, which aren't healthy devices: %v", q.ids, w.listed[q.Resource])
	}
	liked := sets.New(preferred...).Intersection(sets.New(choice.Among...))
	if open := q.Count - len(choice.Fixed); liked.Len() > 0 && open > 0 {
		if n := got.Intersection(liked).Len(); n != min(open, liked.Len()) {
			w.Fatalf("gets %v of %v, though the plugin prefers %v", q.ids, choice, preferred)
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

// same fails unless the pods have the same in another book.
func (w *world) same(other *Book) {
	for _, uid := range w.book.Pods() {
		was, is := w.book.Assigned(uid), other.Assigned(uid)
		if len(was) != len(is) {
			w.Fatalf("after a restart %s has %v, before it had %v", uid, is, was)
		}
		for container, list := range was {
			for _, both := range [][]Assigned{list, is[container]} {
				for i := range both {
					both[i].Healthy, both[i].Stale = true, false // as long as no plugin is back
				}
			}
			if !reflect.DeepEqual(list, is[container]) {
				w.Fatalf("after a restart %s in %s has %v, before it had %v", container, uid, is[container], list)
			}
		}
	}
}

// end restarts and ends all pods.
func (w *world) end() {
	w.restart()
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
			r := w.book.Reserve()
			err := r.Keep(Request{Pod: pod, Need: Need{Container: "c", Resource: name, Count: healthy.Len()}})
			if err != nil || !healthy.Equal(sets.New(r.kept[0].ids...)) {
				w.Fatalf("of %v are %v, %v free", healthy, r.kept, err)
			}
		}
		w.book.Release("")
	}
}
