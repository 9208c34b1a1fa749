package claims

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Standing is how far a driver is with a claim.
type Standing int

const (
	// Idle drivers have not been called about the claim, or have unprepared it.
	Idle Standing = iota
	// Unsure drivers may have prepared it: they are called, a call has failed, or an earlier process has called them.
	Unsure
	// Prepared drivers have answered that the claim is prepared.
	Prepared
)

// String is for logs and tests.
func (s Standing) String() string { return [...]string{"idle", "unsure", "prepared"}[s] }

// Device is a device of a claim, as its driver has described it.
type Device struct {
	Pool, Name string
	// ShareID is of a device that several claims share; empty for others.
	ShareID string
	// Requests are those of the claim that the device is for; none for all.
	Requests []string
	// CDI are the qualified names by which a container runtime knows the device.
	CDI []string
}

// Driver is a driver's part in a claim.
type Driver struct {
	Standing Standing
	// Calling is true while the driver is being called about the claim.
	Calling bool
	// Unanswered is true from when kubelot notes the driver, or begins to have it unprepare the claim, until the driver
	// answers that the claim is prepared. What an earlier preparation has given is not known any more.
	Unanswered bool
	Devices    []Device
}

// Claim is a claim that pods of this node use, or have used.
type Claim struct {
	types.NamespacedName
	UID types.UID
	// Pods use it.
	Pods map[types.UID]bool
	// Drivers are all of its allocation, also those without devices.
	Drivers map[string]*Driver
}

// doubt takes the claim for unprepared, also in a later process, which finds this on the disk.
func (d *Driver) doubt() { d.Standing, d.Unanswered, d.Devices = Unsure, true, nil }

// DriverNames are the claim's drivers, sorted.
func (c *Claim) DriverNames() []string { return slices.Sorted(maps.Keys(c.Drivers)) }

// Ready reports whether all drivers have prepared the claim.
func (c *Claim) Ready() bool {
	for _, d := range c.Drivers {
		if d.Standing != Prepared || d.Calling {
			return false
		}
	}
	return true
}

// unprepared are the drivers that have not prepared the claim, sorted.
func (c *Claim) unprepared() []string {
	return slices.DeleteFunc(c.DriverNames(), func(name string) bool { return c.Drivers[name].Standing == Prepared })
}

// calling is a driver that is being called about the claim; empty if none is.
func (c *Claim) calling() string {
	for _, name := range c.DriverNames() {
		if c.Drivers[name].Calling {
			return name
		}
	}
	return ""
}

// Book is what is known of all claims.
type Book map[types.NamespacedName]*Claim

// All are the claims, sorted by their names.
func (b Book) All() []*Claim {
	return slices.SortedFunc(maps.Values(b), func(x, y *Claim) int { return strings.Compare(x.String(), y.String()) })
}

// Of are the claims that the pod uses, sorted by their names.
func (b Book) Of(pod types.UID) []*Claim {
	return slices.DeleteFunc(b.All(), func(c *Claim) bool { return !c.Pods[pod] })
}

// Users are the pods that use the claims, by the claims' names, sorted.
func (b Book) Users(namespace string, needs []Need) map[string][]types.UID {
	users := map[string][]types.UID{}
	for _, n := range needs {
		if c := b[types.NamespacedName{Namespace: namespace, Name: n.Claim}]; c != nil {
			users[n.Claim] = slices.Sorted(maps.Keys(c.Pods))
		}
	}
	return users
}

// Abandon takes drivers that aren't there for having no part in the claim, and returns their names. What they have
// prepared is theirs to find when they come back. A pod that comes back gets all of the claim anew: the others have
// perhaps prepared it, and where there are none the claim is gone. Nothing is done while a driver is being called.
func (b Book) Abandon(c *Claim, there func(driver string) bool) (gone []string) {
	if c.calling() != "" {
		return nil
	}
	for _, name := range c.DriverNames() {
		if c.Drivers[name].Standing != Idle && !there(name) {
			delete(c.Drivers, name) // the file says no more of a driver than that it has a part
			gone = append(gone, name)
		}
	}
	left := false
	for _, d := range c.Drivers {
		if len(gone) > 0 && d.Standing != Idle {
			left = true
			d.doubt()
		}
	}
	if len(gone) > 0 && !left {
		delete(b, c.NamespacedName)
	}
	return gone
}

// add notes that the pod uses the claim, and reports whether that is new.
func (b Book) add(pod types.UID, w Wanted, standing Standing) bool {
	c := b[w.NamespacedName]
	if c == nil {
		c = &Claim{NamespacedName: w.NamespacedName, UID: w.UID, Pods: map[types.UID]bool{}, Drivers: map[string]*Driver{}}
		b[w.NamespacedName] = c
	}
	fresh := !c.Pods[pod]
	c.Pods[pod] = true
	for _, name := range w.Drivers {
		if c.Drivers[name] == nil {
			c.Drivers[name], fresh = &Driver{Standing: standing, Unanswered: true}, true
		}
	}
	return fresh
}

// Adopt notes claims that an earlier process may have had prepared for the pod, of which nothing is known any more.
func (b Book) Adopt(pod types.UID, all []Wanted) {
	for _, w := range all {
		if c := b[w.NamespacedName]; c == nil || c.UID == w.UID {
			b.add(pod, w, Unsure)
		}
	}
}

// TrustAllocated takes the claims of these pods for prepared: an earlier process of the same boot has said so. A driver
// without devices has perhaps been told to unprepare the claim since.
func (b Book) TrustAllocated(pods map[types.UID]bool) {
	for _, c := range b {
		for pod := range c.Pods {
			c.trust(pods[pod], func(d *Driver) bool { return len(d.Devices) > 0 })
		}
	}
}

// Trust takes the pod's claims for prepared: its sandbox is up, so that none has been unprepared. An unanswered driver
// is still asked: the sandbox proves an earlier preparation, whose devices are not known any more.
func (b Book) Trust(pod types.UID) {
	for _, c := range b {
		c.trust(c.Pods[pod], func(d *Driver) bool { return !d.Calling && !d.Unanswered })
	}
}

func (c *Claim) trust(known bool, which func(*Driver) bool) {
	for _, d := range c.Drivers {
		if known && which(d) {
			d.Standing = Prepared
		}
	}
}

// Knows reports whether the pod has claims.
func (b Book) Knows(pod types.UID) bool {
	for _, c := range b {
		if c.Pods[pod] {
			return true
		}
	}
	return false
}

// Holds reports whether everything that the pod needs is prepared for it.
func (b Book) Holds(namespace string, pod types.UID, needs []Need) bool {
	for _, n := range needs {
		c := b[types.NamespacedName{Namespace: namespace, Name: n.Claim}]
		if c == nil || !c.Pods[pod] || !c.Ready() {
			return false
		}
	}
	return true
}

// anyDriver stands for all drivers in InUse.
const anyDriver = "<any>"

// InUse is how many claims are prepared, by driver and for anyDriver.
func (b Book) InUse() map[string]int {
	n := map[string]int{anyDriver: 0}
	for _, c := range b {
		if !c.Ready() {
			continue
		}
		n[anyDriver]++
		for name := range c.Drivers {
			n[name]++
		}
	}
	return n
}
