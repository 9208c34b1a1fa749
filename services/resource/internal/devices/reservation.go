package devices

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/sets"
)

// errReleased is of a pod that has ended meanwhile.
var errReleased = errors.New("the pod has ended")

// Reservation is what is kept for a pod while plugins are asked about it. They are asked in the order in which it was
// kept: Offer, Prefer and Confirm are about the first of what is left, and there must be one. It belongs to the book's
// goroutine.
type Reservation struct {
	book *Book
	kept []kept
}

// kept are devices that are kept for a container.
type kept struct {
	Request
	// ids are the devices, sorted.
	ids        []string
	assignment *assignment
}

// Reserve begins a reservation, for which nothing is kept yet.
func (b *Book) Reserve() *Reservation { return &Reservation{book: b} }

// Keep chooses a container's devices and keeps them for it, unless it has them already. The error refuses the pod.
func (r *Reservation) Keep(q Request) error { return r.keep(q, nil) }

// keep is Keep where the plugin prefers these devices.
func (r *Reservation) keep(q Request, preferred []string) error {
	choice, err := r.book.pick(q)
	if err != nil || choice.Size == 0 {
		return err
	}
	uid, ids := string(q.Pod.UID), choice.Choose(preferred)
	a := &assignment{
		nodes: r.book.resources[q.Resource].byNode(ids), kept: true, before: r.book.pods[uid][q.Container][q.Resource],
	}
	r.book.put(uid, q.Container, q.Resource, a)
	r.kept = append(r.kept, kept{q, ids, a})
	return nil
}

// Next is the resource of the first; empty where nothing is left. It may be called from any goroutine while no other
// method is.
func (r *Reservation) Next() string {
	if len(r.kept) == 0 {
		return ""
	}
	return r.kept[0].Resource
}

// Offer is the choice for the first, made anew: it has what is kept for this container and for the later ones, and what
// others have given back meanwhile. The error refuses the pod.
func (r *Reservation) Offer() (Choice, error) {
	first := r.kept[0]
	if !r.holds(first) {
		return Choice{}, errReleased
	}
	r.Drop()
	defer r.undrop()
	choice, err := r.book.pick(first.Request)
	if err != nil && r.healthy(first) { // a later container has got some of them
		return Choice{Fixed: first.ids, Size: first.Count}, nil
	}
	return choice, err
}

// Prefer keeps other devices instead of the first, if its plugin prefers them, and chooses the later ones once more. No
// container gets fewer that are near to its NUMA nodes by that: then everything stays as it was. It returns the IDs of
// the first, sorted. The error refuses the pod.
func (r *Reservation) Prefer(preferred []string) (ids []string, err error) {
	before := r.kept
	if !r.holds(before[0]) {
		return nil, errReleased
	}
	err = r.again(preferred)
	healthy := r.healthy(before[0])
	if err != nil || healthy && r.farther(before) { // unhealthy ones can't be given in any case
		r.Drop()
		r.kept = before
		r.undrop()
	}
	if err != nil && !healthy {
		return nil, err
	}
	return r.kept[0].ids, nil
}

// Confirm gives the container of the first what is kept for it, with the plugin's answer, and goes on to the next. It
// reports whether it was still kept: the pod may have ended meanwhile.
func (r *Reservation) Confirm(response []byte) bool {
	first := r.kept[0]
	r.kept = r.kept[1:]
	if !r.holds(first) {
		return false
	}
	first.assignment.kept, first.assignment.response, first.assignment.before = false, response, nil
	return true
}

// Drop frees what is left. Stale devices stay their container's.
func (r *Reservation) Drop() {
	for _, k := range r.kept {
		if r.holds(k) {
			r.book.put(string(k.Pod.UID), k.Container, k.Resource, k.assignment.before)
		}
	}
}

// undrop keeps what was dropped.
func (r *Reservation) undrop() {
	for _, k := range r.kept {
		r.book.put(string(k.Pod.UID), k.Container, k.Resource, k.assignment)
	}
}

// again keeps devices for all that is left.
func (r *Reservation) again(preferred []string) error {
	r.Drop()
	before := r.kept
	r.kept = nil
	for _, k := range before {
		if err := r.keep(k.Request, preferred); err != nil {
			return err
		}
		preferred = nil
	}
	return nil
}

func (r *Reservation) holds(k kept) bool {
	return k.assignment.kept && r.book.pods[string(k.Pod.UID)][k.Container][k.Resource] == k.assignment
}

// healthy reports whether all that is kept can be given.
func (r *Reservation) healthy(k kept) bool {
	resource := r.book.resources[k.Resource]
	return resource != nil && resource.healthy().HasAll(k.ids...)
}

// farther reports whether a container has fewer devices near to its NUMA nodes than before.
func (r *Reservation) farther(before []kept) bool {
	for i, k := range r.kept {
		if r.near(k) < r.near(before[i]) {
			return true
		}
	}
	return false
}

// near is how many of the devices are near to the NUMA nodes from which they are to be.
func (r *Reservation) near(k kept) (n int) {
	nodes := sets.New(k.Affinity...)
	for _, id := range k.ids {
		if nodes.HasAny(r.book.resources[k.Resource].devices[id].Nodes...) {
			n++
		}
	}
	return n
}
