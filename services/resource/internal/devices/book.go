package devices

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// Grace is how long a resource stays on the Node after its plugin has gone, and how long after the start pods wait for
// a plugin that was there before.
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
	started   time.Time
	resources map[string]*inventory
	gone      sets.Set[string]
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
	// away is since when the plugin isn't there. It is zero while it is.
	away time.Time
}

// New makes an empty book of a daemon that has started at that time.
func New(started time.Time) *Book {
	return &Book{
		started: started, resources: map[string]*inventory{}, gone: sets.New[string](),
		pods: map[string]map[string]map[string]*assignment{},
	}
}

// Listed takes all devices of a resource, as its plugin has listed them. Of two with one ID the last counts. It returns
// the UIDs of the pods whose devices have become healthy or unhealthy.
func (b *Book) Listed(name string, list []Device) (changed []string) {
	before := b.resources[name]
	now := &inventory{devices: make(map[string]Device, len(list)), listed: true}
	for _, d := range list {
		now.devices[d.ID] = d
	}
	now.recalled = before != nil && before.recalled && now.healthy().Len() == 0
	b.resources[name] = now
	b.gone.Delete(name)
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
		b.resources[name] = r
	}
	b.gone.Delete(name)
	if r.away.IsZero() {
		r.away = now
	}
}

// Capacity is what the Node has of devices at that time.
func (b *Book) Capacity(now time.Time) Capacity {
	c := Capacity{Devices: map[string]Count{}}
	gone := b.gone.Clone()
	for name, r := range b.resources {
		if r.expired(now) {
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
		if r.expired(now) {
			delete(b.resources, name)
			b.gone.Insert(name)
			expired = append(expired, name)
		}
	}
	slices.Sort(expired)
	return expired
}

// WakeAt is when the next resource expires unless its plugin comes back; zero means never.
func (b *Book) WakeAt() (at time.Time) {
	for _, r := range b.resources {
		if end := r.away.Add(Grace); !r.away.IsZero() && (at.IsZero() || end.Before(at)) {
			at = end
		}
	}
	return at
}

// Waiting reports whether pods that want the resource have to wait for its plugin, which was there before the start,
// and until when.
func (b *Book) Waiting(name string, now time.Time) (until time.Time, waiting bool) {
	r := b.resources[name]
	until = b.started.Add(Grace)
	return until, r != nil && r.recalled && now.Before(until)
}

// Known reports whether the resource is a device plugin's: one has it, or had it since the start, or pods have devices
// of it. A pod that wants devices of a plugin that is gone for good is refused, it never runs without them.
func (b *Book) Known(name string) bool {
	if b.resources[name] != nil || b.gone.Has(name) {
		return true
	}
	for _, containers := range b.pods {
		for _, resources := range containers {
			if resources[name] != nil {
				return true
			}
		}
	}
	return false
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

func (r *inventory) expired(now time.Time) bool {
	return !r.away.IsZero() && !now.Before(r.away.Add(Grace))
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
// it was while the plugin is away, which says nothing of the device.
func (r *inventory) health(id string) bool {
	return r == nil || !r.listed || r.devices[id].Healthy
}
