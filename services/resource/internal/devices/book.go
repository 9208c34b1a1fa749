package devices

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Grace is how long a resource stays on the Node after its plugin has gone. It is also how long pods wait for a plugin
// that was there before the start, from when all pods are known.
const Grace = 5 * time.Minute

// Device is one device of a plugin.
type Device struct {
	ID      string
	Healthy bool
	// Nodes are the NUMA nodes to which it is near, sorted. Without any it has no topology.
	Nodes []int
}

// Count is how many devices a resource has, and how many of them are healthy.
type Count struct{ Capacity, Allocatable int64 }

// Capacity is what the Node has of devices.
type Capacity struct {
	Devices map[string]Count
	// Gone are resources that the Node has from a plugin that hasn't come back in time, sorted. They become 0.
	Gone []string
}

// Book is what is known of devices. Its zero value can't be used.
type Book struct {
	// settled is since when all pods of the node are known; zero while they aren't.
	settled   time.Time
	resources map[string]*inventory
	// gone are resources whose plugins haven't come back in time.
	gone map[string]departed
	// pods are the assignments by pod UID, container and resource.
	pods map[string]map[string]map[string]*assignment
}

// inventory is what is known of a resource.
type inventory struct {
	// devices are those of the last list.
	devices map[string]Device
	// listed is true once its plugin has listed devices since the start; recalled where it was there before the start and
	// hasn't listed a healthy one: plugins begin with an empty list while their driver is being loaded.
	listed, recalled bool
	// away is since when the plugin isn't there: ago for one that wasn't since the start. It is zero while it is there.
	away time.Time
}

// departed is a resource that is gone.
type departed struct {
	// before is true where its plugin was gone before the start; over once the Node has none of it any more, so that what
	// it has of it later is somebody else's.
	before, over bool
	// last is what its plugin has listed last: pods may have its devices still. It is nil where nothing is known.
	last *inventory
}

// ago is before any start.
var ago = time.Unix(0, 0)

// New makes an empty book.
func New() *Book {
	return &Book{
		resources: map[string]*inventory{}, gone: map[string]departed{},
		pods: map[string]map[string]map[string]*assignment{},
	}
}

// Settled takes that all pods of the node are known since now. Plugins that were there before the start have their time
// to come back from then on.
func (b *Book) Settled(now time.Time) { b.settled = now }

// Listed takes all devices of a resource, as its plugin has listed them. Of two with one ID the last counts. It returns
// the UIDs of the pods whose devices have become healthy or unhealthy.
func (b *Book) Listed(name string, list []Device) (changed []string) {
	before := b.resources[name].or(b.gone[name])
	now := &inventory{devices: make(map[string]Device, len(list)), listed: true}
	for _, d := range list {
		now.devices[d.ID] = d
	}
	now.recalled = before != nil && before.recalled && now.healthy().Len() == 0
	b.resources[name] = now
	delete(b.gone, name)
	for uid, containers := range b.pods {
		if slices.ContainsFunc(idsOf(containers, name), func(id string) bool {
			return before.health(id) != now.health(id)
		}) {
			changed = append(changed, uid)
		}
	}
	slices.Sort(changed)
	return changed
}

// Away takes that the plugin of a resource isn't there any more, or has failed before its first list.
func (b *Book) Away(name string, now time.Time) {
	r := b.resources[name]
	if r == nil {
		r = &inventory{}
		if last := b.gone[name].last; last != nil {
			r.devices, r.listed = last.devices, last.listed
		}
		b.resources[name] = r
	}
	delete(b.gone, name)
	if r.away.IsZero() {
		r.away = now
	}
}

// Capacity is what the Node has of devices at that time.
func (b *Book) Capacity(now time.Time) Capacity {
	c := Capacity{Devices: map[string]Count{}}
	gone := sets.New[string]()
	for name, d := range b.gone {
		if !d.before && !d.over {
			gone.Insert(name)
		}
	}
	for name, r := range b.resources {
		if r.expired(b.settled, now) {
			gone.Insert(name)
			continue
		}
		c.Devices[name] = Count{Capacity: int64(len(r.devices)), Allocatable: int64(r.healthy().Len())}
	}
	c.Gone = sets.List(gone)
	return c
}

// Expire forgets the resources whose plugins haven't come back in time, and returns their names.
func (b *Book) Expire(now time.Time) (expired []string) {
	for name, r := range b.resources {
		if r.expired(b.settled, now) {
			delete(b.resources, name)
			b.gone[name] = departed{last: r}
			expired = append(expired, name)
		}
	}
	slices.Sort(expired)
	return expired
}

// WakeAt is when the next resource expires unless its plugin comes back; zero means never.
func (b *Book) WakeAt() (at time.Time) {
	for _, r := range b.resources {
		if end := r.end(b.settled); !end.IsZero() && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// Waiting reports whether pods that want the resource have to wait for its plugin, which was there before the start,
// and until when; zero as long as not all pods are known.
func (b *Book) Waiting(name string, now time.Time) (until time.Time, waiting bool) {
	if !b.settled.IsZero() {
		until = b.settled.Add(Grace)
	}
	r := b.resources[name]
	return until, r != nil && r.recalled && (until.IsZero() || now.Before(until))
}

// Left takes which resources the Node still has of plugins that were gone before the start, and whether it has one of a
// plugin that has gone since.
func (b *Book) Left(names []corev1.ResourceName, has func(name corev1.ResourceName) bool) {
	maps.DeleteFunc(b.gone, func(_ string, d departed) bool { return d.before })
	for name, d := range b.gone {
		d.over = d.over || !has(corev1.ResourceName(name))
		b.gone[name] = d
	}
	for _, name := range names {
		if _, gone := b.gone[string(name)]; !gone {
			b.gone[string(name)] = departed{before: true}
		}
	}
}

// known reports whether the resource is a device plugin's: one has it, or had it as long as the Node has it, or pods
// have devices of it. A pod that wants devices of a plugin that is gone for good is refused, it never runs without
// them.
func (b *Book) known(name string) bool {
	d, gone := b.gone[name]
	return b.resources[name] != nil || gone && !d.over || b.used(name).Len() > 0
}

// Allocatable are the healthy devices of each resource, by their IDs' order.
func (b *Book) Allocatable() map[string][]Device {
	all := make(map[string][]Device, len(b.resources))
	for name, r := range b.resources {
		for _, id := range sets.List(r.healthy()) {
			all[name] = append(all[name], r.devices[id])
		}
	}
	return all
}

// or is what is known of a resource also if its plugin hasn't come back in time; nil for nothing.
func (r *inventory) or(d departed) *inventory {
	if r == nil {
		return d.last
	}
	return r
}

// end is when the resource expires unless its plugin comes back; zero for never.
func (r *inventory) end(settled time.Time) time.Time {
	switch {
	case r.away.IsZero(), r.recalled && settled.IsZero():
		return time.Time{}
	case r.recalled && r.away.Before(settled):
		return settled.Add(Grace)
	}
	return r.away.Add(Grace)
}

func (r *inventory) expired(settled, now time.Time) bool {
	end := r.end(settled)
	return !end.IsZero() && !now.Before(end)
}

// healthy are the IDs of the devices that can be given. Without its plugin there are none.
func (r *inventory) healthy() sets.Set[string] {
	ids := sets.New[string]()
	for id, d := range r.devices {
		if d.Healthy && r.away.IsZero() {
			ids.Insert(id)
		}
	}
	return ids
}

// health is what a pod's status says of its device. As long as no plugin has said anything, it is healthy. It stays as
// it was while the plugin is away, for however long, which says nothing of the device.
func (r *inventory) health(id string) bool {
	return r == nil || !r.listed || r.devices[id].Healthy
}
