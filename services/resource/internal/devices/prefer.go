package devices

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/sets"
)

// errReleased is of a pod that has ended meanwhile.
var errReleased = errors.New("the pod has ended")

// Offer is the choice for the first of what is kept for a pod, made anew: it has what is kept for this container and
// for the later ones, and what others have given back meanwhile. The error refuses the pod.
func Offer(b *Book, kept []*Kept) (Choice, error) {
	if !b.holds(kept[0]) {
		return Choice{}, errReleased
	}
	lift(b, kept)
	defer lay(b, kept)
	choice, err := b.Pick(kept[0].request)
	if err != nil && healthy(b, kept[0]) { // a later container has got some of them
		return Choice{Fixed: kept[0].IDs, Size: kept[0].Count}, nil
	}
	return choice, err
}

// Prefer keeps other devices instead of the first of what is kept for a pod, if its plugin prefers them, and chooses
// those of the later ones once more. No container gets fewer that are near to its NUMA nodes by that: then everything
// stays as it was. The error refuses the pod.
func Prefer(b *Book, kept []*Kept, preferred []string) error {
	if !b.holds(kept[0]) {
		return errReleased
	}
	before := make([]Kept, len(kept))
	for i, k := range kept {
		before[i] = *k
	}
	lift(b, kept)
	err := again(b, kept, preferred)
	if err == nil && !farther(b, kept, before) {
		return nil
	}
	fine := healthy(b, &before[0])
	if err == nil && !fine { // it can't have what was kept for it
		return nil
	}
	lift(b, kept)
	for i, k := range kept {
		*k = before[i]
	}
	lay(b, kept)
	if fine {
		return nil
	}
	return err
}

// again keeps devices for all of what was kept.
func again(b *Book, kept []*Kept, preferred []string) error {
	for _, k := range kept {
		next, err := b.Keep(k.request, preferred)
		if err != nil {
			return err
		}
		*k, preferred = *next, nil
	}
	return nil
}

// healthy reports whether all that is kept can be given.
func healthy(b *Book, k *Kept) bool {
	r := b.resources[k.Resource]
	return r != nil && r.healthy().HasAll(k.IDs...)
}

// lift takes what is kept out of the book, lay puts it back.
func lift(b *Book, kept []*Kept) {
	for _, k := range kept {
		b.Drop(k)
	}
}

func lay(b *Book, kept []*Kept) {
	for _, k := range kept {
		b.put(k.PodUID, k.Container, k.Resource, k.assignment)
	}
}

// farther reports whether a container has fewer devices near to its NUMA nodes than before.
func farther(b *Book, kept []*Kept, before []Kept) bool {
	for i, k := range kept {
		if near(b, k) < near(b, &before[i]) {
			return true
		}
	}
	return false
}

// near is how many of the devices are near to the NUMA nodes from which they are to be.
func near(b *Book, k *Kept) (n int) {
	nodes := sets.New(k.request.Affinity...)
	for _, id := range k.IDs {
		if nodes.HasAny(b.resources[k.Resource].devices[id].Nodes...) {
			n++
		}
	}
	return n
}
