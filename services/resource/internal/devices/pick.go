package devices

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// ErrUnhealthy is of a resource without any healthy device, as while its plugin is away.
var ErrUnhealthy = errors.New("no healthy devices present; cannot allocate unhealthy devices")

// ErrUnregistered is of a resource that no plugin has.
var ErrUnregistered = errors.New("cannot allocate unregistered device")

// Request asks for the devices of one resource for one container.
type Request struct {
	Pod *corev1.Pod
	Need
	// Affinity are the NUMA nodes from which they are to be; none stand for any.
	Affinity []int
}

// Choice is which devices a container can get.
type Choice struct {
	// Fixed are those that it gets in any case: of earlier init containers, or all that are near to its NUMA nodes.
	Fixed []string
	// Among are those of which it gets the rest, in the order in which they are taken.
	Among []string
	// Size is how many it gets. It is 0 where it has them already: there is nothing to do, and no plugin to be asked.
	Size int
}

// Open reports whether there is something left to choose: the plugin may be asked what it prefers.
func (c Choice) Open() bool { return len(c.Fixed) < c.Size }

// Available are all devices of the choice, sorted: what the plugin is told. It must include those that are fixed.
func (c Choice) Available() []string {
	return sets.List(sets.New(c.Fixed...).Insert(c.Among...))
}

// Choose makes the choice. What the plugin prefers comes first, as far as it may be chosen. The IDs are sorted.
func (c Choice) Choose(preferred []string) []string {
	taken, among := sets.New(c.Fixed...), sets.New(c.Among...)
	for _, list := range [][]string{preferred, c.Among} {
		for _, id := range list {
			if taken.Len() < c.Size && among.Has(id) {
				taken.Insert(id)
			}
		}
	}
	return sets.List(taken)
}

// pick finds which devices the container can get. The error refuses the pod.
func (b *Book) pick(q Request) (Choice, error) {
	has := b.assigned(string(q.Pod.UID), q.Container, q.Resource)
	if has.Len() > 0 && has.Len() != q.Count {
		return Choice{}, fmt.Errorf("pod %q container %q changed request for resource %q from %d to %d", q.Pod.UID,
			q.Container, q.Resource, has.Len(), q.Count)
	}
	r := b.resources[q.Resource]
	if r == nil {
		return Choice{}, fmt.Errorf("%w %s", ErrUnregistered, q.Resource)
	}
	healthy := r.healthy()
	switch {
	case healthy.Len() == 0:
		return Choice{}, fmt.Errorf("%w %s", ErrUnhealthy, q.Resource)
	case !healthy.IsSuperset(has):
		return Choice{}, fmt.Errorf("previously allocated devices are no longer healthy; "+
			"cannot allocate unhealthy devices %s", q.Resource)
	case has.Len() > 0 && b.pods[string(q.Pod.UID)][q.Container][q.Resource].stale:
		return Choice{Fixed: sets.List(has), Size: q.Count}, nil
	case has.Len() > 0:
		return Choice{}, nil
	}
	c := Choice{Size: q.Count}
	c.Fixed = first(sets.List(b.reusable(q).Intersection(healthy)), q.Count)
	rest := q.Count - len(c.Fixed)
	if rest == 0 {
		return c, nil
	}
	free := healthy.Difference(b.used(q.Resource))
	if free.Len() < rest {
		return Choice{}, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			q.Resource, rest, free.Len())
	}
	near, others := r.split(free, q.Affinity)
	if rest < len(near) {
		c.Among = near
		return c, nil
	}
	c.Fixed, c.Among = append(c.Fixed, near...), others
	return c, nil
}

// split divides devices into those that are near to one of the NUMA nodes, and the others: first those near to other
// nodes, then those without any. Each is sorted.
func (r *inventory) split(free sets.Set[string], affinity []int) (near, others []string) {
	var without []string
	nodes := sets.New(affinity...)
	for _, id := range sets.List(free) {
		switch d := r.devices[id]; {
		case len(d.Nodes) == 0:
			without = append(without, id)
		case nodes.HasAny(d.Nodes...):
			near = append(near, id)
		default:
			others = append(others, id)
		}
	}
	return near, append(others, without...)
}

// reusable are the devices of earlier plain init containers that no container has that runs at the same time.
func (b *Book) reusable(q Request) sets.Set[string] {
	ended, running := sets.New[string](), sets.New[string]()
	passed, stays := false, false
	for c, plain := range containers(q.Pod) {
		own := b.assigned(string(q.Pod.UID), c.Name, q.Resource)
		switch {
		case c.Name == q.Container:
			passed, stays = true, !plain
		case !plain || passed && stays:
			running = running.Union(own)
		case !passed:
			ended = ended.Union(own)
		}
	}
	return ended.Difference(running)
}

func first(list []string, n int) []string { return list[:min(n, len(list))] }
