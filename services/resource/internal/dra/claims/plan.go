package claims

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// View is what the rest of the node says.
type View struct {
	// Registered reports whether a driver is there to be called.
	Registered func(driver string) bool
	// Leaving reports whether a pod has ended.
	Leaving func(pod types.UID) bool
}

// Calls are claims that drivers are to be called about, by the drivers' names.
type Calls map[string][]*Claim

func (c *Calls) add(driver string, claim *Claim) {
	if *c == nil {
		*c = Calls{}
	}
	(*c)[driver] = append((*c)[driver], claim)
}

// Begin notes that the drivers are being called. Until they answer, the claims belong to the caller.
func (c Calls) Begin() {
	for driver, list := range c {
		for _, claim := range list {
			d := claim.Drivers[driver]
			d.Calling, d.Standing = true, Unsure
		}
	}
}

// Step is what is due for a pod. At most one of Calls, Waits and Done is set in a step of Prepare; one of Release may
// have calls and wait.
type Step struct {
	Calls Calls
	// Waits say what must end first.
	Waits []string
	// Lacks are drivers that must be there first.
	Lacks []string
	// Done is true where nothing is left to do.
	Done bool
	// Changed is true where the book has changed. It must be on the disk before anybody is called.
	Changed bool
}

// MissingError is of drivers that aren't registered.
type MissingError struct{ Drivers []string }

// Error has a part for each driver.
func (m MissingError) Error() string {
	parts := make([]string, 0, len(m.Drivers))
	for _, driver := range m.Drivers {
		parts = append(parts, fmt.Sprintf("DRA driver %s is not registered", driver))
	}
	return strings.Join(parts, ", ")
}

// Prepare says what is due for a pod that is to start. As long as a driver isn't there, or an earlier use of a claim
// isn't over, the book stays as it is: the pod can be deleted without any driver being called.
func (b Book) Prepare(pod types.UID, all []Wanted, v View) (Step, error) {
	if missing := b.lacking(all, v); len(missing) > 0 {
		return Step{Lacks: missing}, MissingError{missing}
	}
	var s Step
	for _, w := range all {
		if why := b.blocked(pod, w, v); why != "" {
			s.Waits = append(s.Waits, why)
		}
	}
	if len(s.Waits) > 0 {
		return s, nil
	}
	seen := map[types.NamespacedName]bool{}
	for _, w := range all {
		if b.add(pod, w, Idle) {
			s.Changed = true
		}
		if c := b[w.NamespacedName]; !seen[w.NamespacedName] {
			seen[w.NamespacedName] = true
			s.prepare(c)
		}
	}
	if len(s.Waits) > 0 {
		s.Calls = nil
	}
	s.Done = len(s.Waits) == 0 && len(s.Calls) == 0
	return s, nil
}

// lacking are the drivers to be called that aren't there: those of the allocations, and those that are known from
// before and have not prepared what they should.
func (b Book) lacking(all []Wanted, v View) []string {
	var missing []string
	for _, w := range all {
		drivers := w.Drivers
		if c := b[w.NamespacedName]; c != nil && c.UID == w.UID {
			drivers = slices.Concat(drivers, c.unprepared())
		}
		for _, driver := range drivers {
			if !v.Registered(driver) && !slices.Contains(missing, driver) {
				missing = append(missing, driver)
			}
		}
	}
	return missing
}

// blocked says which earlier use of the claim must be over first.
func (b Book) blocked(pod types.UID, w Wanted, v View) string {
	c := b[w.NamespacedName]
	switch {
	case c == nil:
		return ""
	case c.UID != w.UID:
		return fmt.Sprintf("old ResourceClaim with same name %s and different UID %s still exists "+
			"(previous pod force-deleted?!)", w.Name, c.UID)
	case c.Pods[pod] || len(c.Pods) == 0:
		return ""
	}
	used := false
	for other := range c.Pods {
		switch {
		case v.Leaving(other):
		case slices.Contains(w.Former, other):
			used = true
		default:
			return "" // its allocation is this one
		}
	}
	if used {
		return fmt.Sprintf("ResourceClaim %s is still used by a pod for which it is not reserved any more", w.Name)
	}
	return fmt.Sprintf("ResourceClaim %s is being unprepared for a pod that has ended", w.Name)
}

// prepare adds the claim's drivers that have not prepared it.
func (s *Step) prepare(c *Claim) {
	if driver := c.calling(); driver != "" {
		s.Waits = append(s.Waits, fmt.Sprintf("DRA driver %s prepares ResourceClaim %s for another pod", driver, c.Name))
		return
	}
	for _, name := range c.DriverNames() {
		if c.Drivers[name].Standing != Prepared {
			s.Calls.add(name, c)
		}
	}
}

// Release says what is due for a pod that has ended. A claim that others use only loses the pod; the others lose their
// devices, are unprepared, and are then forgotten by the next call.
func (b Book) Release(pod types.UID, v View) Step {
	var s Step
	for _, c := range b.Of(pod) {
		switch {
		case len(c.Pods) > 1:
			delete(c.Pods, pod)
			s.Changed = true
		case c.calling() != "":
			s.Waits = append(s.Waits, fmt.Sprintf("DRA driver %s is being called about ResourceClaim %s", c.calling(), c.Name))
		case s.unprepare(c, v):
			delete(b, c.NamespacedName)
			s.Changed = true
		}
	}
	slices.Sort(s.Lacks)
	s.Lacks = slices.Compact(s.Lacks)
	s.Done = len(s.Calls) == 0 && len(s.Waits) == 0 && len(s.Lacks) == 0
	return s
}

// unprepare adds the claim's drivers that may have prepared it, and reports whether there are none.
func (s *Step) unprepare(c *Claim, v View) bool {
	none := true
	for _, name := range c.DriverNames() {
		d := c.Drivers[name]
		switch {
		case d.Standing == Idle:
			continue
		case v.Registered(name):
			s.Calls.add(name, c)
			s.Changed = s.Changed || !d.Unanswered
			d.doubt()
		default:
			s.Lacks = append(s.Lacks, name)
		}
		none = false
	}
	return none
}
