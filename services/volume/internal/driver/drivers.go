package driver

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	storagev1 "k8s.io/api/storage/v1"

	"k8s.io/apimachinery/pkg/api/equality"

	"kubelot.dev/bus/topic"
)

// Drivers are the CSI drivers that are registered, and what the cluster says of them. Its methods may be called from
// several goroutines.
type Drivers struct {
	mu         sync.Mutex
	registered map[string]*driver
	// objects are the CSIDriver objects, complete once synced; unknown says why they can't be known.
	objects map[string]*storagev1.CSIDriver
	synced  bool
	unknown error
	changes chan struct{}
	// arrivals and periods are as changes, for other readers; registrations tells Report of drivers that came or went.
	arrivals, periods, registrations chan struct{}
	// refreshes has the names of drivers that are to be asked again what they say of this node.
	refreshes  chan string
	operations *prometheus.HistogramVec
}

// driver is a registered driver.
type driver struct {
	at     topic.PluginEndpoint
	client *Client
}

// ErrUnread is why CSIDriver objects aren't known at the start.
var ErrUnread = errors.New("the CSIDriver objects of the cluster have not been read yet")

// New are no drivers.
func New() *Drivers {
	return &Drivers{
		registered: map[string]*driver{}, objects: map[string]*storagev1.CSIDriver{}, unknown: ErrUnread,
		changes: make(chan struct{}, 1), arrivals: make(chan struct{}, 1), periods: make(chan struct{}, 1),
		registrations: make(chan struct{}, 1), refreshes: make(chan string, 1),
		operations: newOperations(),
	}
}

// Changes delivers when a driver came, or the cluster says something else of one: what has failed may succeed now.
func (d *Drivers) Changes() <-chan struct{} {
	if d == nil {
		return nil
	}
	return d.changes
}

// Arrivals is as Changes, for another reader.
func (d *Drivers) Arrivals() <-chan struct{} { return d.arrivals }

func (d *Drivers) wake() {
	for _, to := range []chan struct{}{d.changes, d.arrivals, d.periods} {
		signal(to)
	}
}

// Registered takes all plugins that are registered. A driver that registers again is dialed again; calls that are under
// way end on the connection on which they began.
func (d *Drivers) Registered(plugins map[string]topic.Plugin) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there, came := map[string]bool{}, false
	for _, p := range plugins {
		if p.Type != topic.CSIPlugin {
			continue
		}
		there[p.Name] = true
		if known := d.registered[p.Name]; known != nil {
			if known.at.Endpoint == p.Endpoint && known.at.Instance == p.Instance {
				continue
			}
			known.client.retire()
			delete(d.registered, p.Name)
		}
		c, err := dial(p.Endpoint, d.watch(p.Name))
		if err != nil {
			slog.Error("a CSI driver that is registered can't be used", "driver", p.Name, "error", err)
			continue
		}
		d.registered[p.Name], came = &driver{p.PluginEndpoint, c}, true
	}
	for name, known := range d.registered {
		if !there[name] {
			known.client.retire()
			delete(d.registered, name)
		}
	}
	if came {
		d.wake()
	}
	signal(d.registrations)
}

// instances are the registered drivers' names with what distinguishes each from its predecessor.
func (d *Drivers) instances() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]string, len(d.registered))
	for name, known := range d.registered {
		all[name] = known.at.Endpoint + " " + known.at.Instance
	}
	return all
}

// Refresh has a driver asked again what it says of this node, and reports whether it may be: its CSIDriver object must
// say how often it is asked anyway. It doesn't wait.
func (d *Drivers) Refresh(name string) bool {
	if d.every(name) == 0 {
		return false
	}
	select {
	case d.refreshes <- name:
	default: // another one is on its way; this one comes with the next failure
	}
	return true
}

// every is how often a driver is to be asked again by itself, by what its CSIDriver object says at the moment; 0 means
// never.
func (d *Drivers) every(name string) time.Duration {
	object, err := d.Object(name)
	if err != nil || object == nil || object.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	return time.Duration(*object.Spec.NodeAllocatableUpdatePeriodSeconds) * time.Second
}

// period delivers when a driver that was asked at that time is to be asked again by itself; nil means never.
func (d *Drivers) period(name string, asked time.Time) <-chan time.Time {
	every := d.every(name)
	if every == 0 {
		return nil
	}
	return time.After(time.Until(asked.Add(every)))
}

// Close ends the connections to all drivers.
func (d *Drivers) Close() { d.Registered(nil) }

// SetObject takes a CSIDriver object; nil for one that is gone.
func (d *Drivers) SetObject(name string, object *storagev1.CSIDriver) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.objects[name]
	if object == nil {
		delete(d.objects, name)
	} else {
		d.objects[name] = object
	}
	// Before all are known nobody asks for one, and Synced wakes everybody.
	if d.synced && (old == nil || object == nil || !equality.Semantic.DeepEqual(old.Spec, object.Spec)) {
		d.wake()
	}
}

// Synced says that all CSIDriver objects have been set.
func (d *Drivers) Synced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.synced = true
	d.wake()
}

// Unknown says why CSIDriver objects can't be known.
func (d *Drivers) Unknown(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unknown = why
}

// Client is the connection to a driver, for the caller to release; nil where it isn't registered.
func (d *Drivers) Client(name string) *Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.registered[name]; known != nil {
		known.client.acquire()
		return known.client
	}
	return nil
}

// Object is the CSIDriver object of a driver; nil where the cluster has none.
func (d *Drivers) Object(name string) (*storagev1.CSIDriver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.synced {
		return nil, d.unknown
	}
	return d.objects[name], nil
}
