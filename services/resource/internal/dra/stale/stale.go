// Package stale decides which ResourceSlices of the node must go, because the driver that has published them isn't
// there any more: pods would be bound to devices that nobody can prepare. A node may delete its slices and may not
// list them. The package has no clock, context or I/O.
//
// # Guarantees
//
//   - At the start those of all drivers that aren't registered go. A restart of the daemon alone takes nothing away.
//   - A driver that has no connected plugin for delayed loses its slices, once. One that comes back in time keeps them.
//   - What fails is tried again after a pause that doubles up to five minutes.
package stale

import (
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"

	"kubelot.dev/bus/pause"
)

const (
	// delayed is how long a driver may be away.
	delayed = 30 * time.Second
	// firstPause and lastPause bound the pause after a failure.
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

// Deletion is a deletion of slices that is due.
type Deletion struct {
	// Driver is the one whose slices go; empty for those of all but Except.
	Driver string
	Except []string

	notBefore time.Time
	failures  int
	busy      bool
	done      bool
}

// Selector selects the slices on the node.
func (d *Deletion) Selector(node string) string {
	terms := []fields.Selector{fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorNodeName, node)}
	if d.Driver != "" {
		terms = append(terms, fields.OneTermEqualSelector(resourceapi.ResourceSliceSelectorDriver, d.Driver))
	}
	for _, driver := range d.Except {
		terms = append(terms, fields.OneTermNotEqualSelector(resourceapi.ResourceSliceSelectorDriver, driver))
	}
	return fields.AndSelectors(terms...).String()
}

// Failures is how often it has failed.
func (d *Deletion) Failures() int { return d.failures }

// Book has what is to be deleted.
type Book struct {
	// all are by driver; empty is for the first of all, which is nil before it is known which drivers there are.
	all map[string]*Deletion
	// known are the drivers that were there.
	known map[string]bool
}

// New is the book at the start.
func New() *Book { return &Book{all: map[string]*Deletion{}, known: map[string]bool{}} }

// See takes the drivers that are registered; the value is whether one of the driver's plugins is connected.
func (b *Book) See(drivers map[string]bool, now time.Time) {
	if b.all[""] == nil {
		b.all[""] = &Deletion{notBefore: now}
	}
	if first := b.all[""]; !first.busy {
		first.Except = slices.Sorted(maps.Keys(drivers))
	}
	for name, connected := range drivers {
		b.known[name] = true
		if connected {
			delete(b.all, name)
		}
	}
	for name := range b.known {
		_, registered := drivers[name]
		d := b.all[name]
		switch {
		case d == nil && !drivers[name]:
			b.all[name] = &Deletion{Driver: name, notBefore: now.Add(delayed)}
		case d != nil && d.done && !registered:
			delete(b.all, name)
			delete(b.known, name)
		}
	}
}

// Due are the deletions to be begun now; they are busy until Ended.
func (b *Book) Due(now time.Time) []*Deletion {
	var due []*Deletion
	for _, name := range slices.Sorted(maps.Keys(b.all)) {
		if d := b.all[name]; !d.busy && !d.done && !now.Before(d.notBefore) {
			d.busy = true
			due = append(due, d)
		}
	}
	return due
}

// Ended takes the end of a deletion.
func (b *Book) Ended(d *Deletion, failed bool, now time.Time) {
	d.busy = false
	if !failed {
		d.done = true
		return
	}
	d.failures++
	d.notBefore = now.Add(pause.After(d.failures, firstPause, lastPause))
}

// Done reports whether nothing has to be deleted, and nothing is.
func (b *Book) Done() bool {
	for _, d := range b.all {
		if !d.done {
			return false
		}
	}
	return true
}

// Next is when a deletion becomes due; zero means never.
func (b *Book) Next() time.Time {
	var next time.Time
	for _, d := range b.all {
		if !d.busy && !d.done && (next.IsZero() || d.notBefore.Before(next)) {
			next = d.notBefore
		}
	}
	return next
}
