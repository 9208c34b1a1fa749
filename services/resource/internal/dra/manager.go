package dra

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/dra/claims"
	"kubelot.dev/services/resource/internal/dra/health"
	"kubelot.dev/services/resource/internal/dra/plugin"
	"kubelot.dev/services/resource/internal/dra/stale"
	"kubelot.dev/services/resource/internal/dra/state"
)

const (
	// period is the longest pause between two looks at everything.
	period = time.Minute
	// deleteLimit bounds one deletion of ResourceSlices.
	deleteLimit = time.Minute
)

// ResourceClaims reads ResourceClaims. A node may read those of its pods by name.
type ResourceClaims interface {
	GetResourceClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error)
}

// ResourceSlices deletes the ResourceSlices that the field selector selects. A node may delete those of its own.
type ResourceSlices interface {
	DeleteResourceSlices(ctx context.Context, fieldSelector string) error
}

// Recorder takes Events; daemon.EventRecorder is one.
type Recorder interface{ Record(e topic.Event) }

// Config says where the manager works.
type Config struct {
	// RootDir is the kubelet's root directory, which must exist.
	RootDir string
	// Node is the node's name.
	Node string
	// Allocated are the pods that an earlier process has published as allocated since the machine has booted.
	Allocated map[types.UID]bool
}

// Ports are what the manager works with.
type Ports struct {
	// Claims and Slices are nil without an API server.
	Claims ResourceClaims
	Slices ResourceSlices
	// Events may be nil.
	Events Recorder
	// Metrics is where the metrics are registered, once for a process; nil for nowhere.
	Metrics prometheus.Registerer
	// Dial connects to drivers; nil for plugin.Unix.
	Dial plugin.Dialer
	// Watched is told of the loop that is to go on until ctx ends (daemon.Pulse); nil for nobody.
	Watched func(ctx context.Context, loops ...chan<- func())
	Log     *slog.Logger
}

// Manager has pods' claims prepared and unprepared. Its methods besides Run may be called from any goroutine, also
// before Run, and don't wait.
type Manager struct {
	*mailbox
	cfg   Config
	ports Ports
	log   *slog.Logger
	loop  *loop.Loop
	// pulse is where it is asked whether the loop goes on.
	pulse   pulse
	now     func() time.Time
	metrics *metrics

	// All below belongs to the goroutine of Run.
	drivers *plugin.Drivers
	stale   *stale.Book
	health  health.Book
	book    claims.Book
	pods    map[types.UID]*pod
	came    uint64
	// dirty is true where the book is another one than that on the disk.
	dirty bool
	// lost is true where the book of an earlier process couldn't be read.
	lost bool
	// synced and plugged are true once all pods, and plugins, have been told of.
	synced, plugged bool
	// again is true where what was done for one pod may have others go on.
	again bool
}

// Used reports whether the manager has anything to do for the pod.
func Used(pod *corev1.Pod) bool { return claims.Used(pod) }

// New makes a manager. It starts nothing.
func New(cfg Config, ports Ports) (*Manager, error) {
	m := &Manager{
		mailbox: newMailbox(), cfg: cfg, ports: ports, log: ports.Log, loop: loop.New(nil), pulse: make(pulse),
		now: time.Now, stale: stale.New(), health: health.Book{}, book: claims.Book{}, pods: map[types.UID]*pod{},
	}
	dial := ports.Dial
	if dial == nil {
		dial = plugin.Unix
	}
	var err error
	m.metrics, err = newMetrics(ports.Metrics)
	m.drivers = plugin.New(plugin.Ports{
		Owner: m.loop, Dial: dial, Observe: m.metrics.call, Arrived: m.arrived, Health: m.reported, Log: ports.Log,
	})
	return m, err
}

// Run gives pods their claims, and takes them back, until ctx ends. What is under way then is gone on with by the next
// process.
func (m *Manager) Run(ctx context.Context) error {
	defer m.loop.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the allocation of ResourceClaims stops"))
	defer m.drivers.Close()
	m.load()
	if m.ports.Watched != nil {
		m.ports.Watched(ctx, m.pulse)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.in:
			m.read(ctx)
		case change := <-m.loop.Changes():
			change()
		case beat := <-m.pulse:
			beat()
		case <-timer.C:
		}
		m.look(ctx)
		timer.Reset(m.rest())
	}
}

// load reads what an earlier process, or a kubelet, has left.
func (m *Manager) load() {
	book, err := state.ReadClaims(m.cfg.RootDir)
	if err != nil {
		m.lost = true
		m.setAside(state.ClaimsFile, err, "can't take over which ResourceClaims are prepared; those of pods that are known "+
			"come from the API server")
	} else {
		m.book = book
		m.book.TrustAllocated(m.cfg.Allocated)
	}
	devices, err := state.ReadHealth(m.cfg.RootDir)
	if err != nil {
		m.setAside(state.HealthFile, err, "can't take over the health of devices; it is unknown until drivers report it")
		return
	}
	m.health = devices
}

// setAside keeps a file that can't be read for a person, and says what that means.
func (m *Manager) setAside(name string, why error, meaning string) {
	where := ""
	if errors.Is(why, state.ErrDamaged) {
		var err error
		if where, err = state.SetAside(m.cfg.RootDir, name); err != nil {
			why = errors.Join(why, err)
		}
	}
	m.log.Error(meaning, "error", why, "kept_as", where)
}

// read takes what the daemon has said.
func (m *Manager) read(ctx context.Context) {
	l := m.mailbox.next()
	if l.plugins != nil {
		m.plugged = true
		m.drivers.Set(ctx, l.plugins)
	}
	m.synced = l.synced
	for _, uid := range l.order {
		p, w := m.pods[uid], l.words[uid]
		if p == nil {
			if w.pod == nil {
				continue
			}
			p = m.add(uid)
		}
		if p.hear(w); p.stage == Sandboxed && !p.prepared {
			m.book.Trust(p.uid)
		}
	}
}

func (m *Manager) add(uid types.UID) *pod {
	m.came++
	p := &pod{uid: uid, order: m.came}
	m.pods[uid] = p
	return p
}

// look does what is due.
func (m *Manager) look(ctx context.Context) {
	if m.synced {
		m.findGone()
	}
	for _, driver := range m.health.Expire(m.now()) {
		m.log.Info("a DRA driver hasn't reported the health of some devices in time", "driver", driver)
		m.saveHealth()
	}
	for m.again = true; m.again; {
		m.again = false
		for _, p := range inOrder(m.pods) {
			m.next(ctx, p)
		}
	}
	for uid, p := range m.pods {
		m.publish(p)
		if p.released && p.object == nil && p.calls == 0 {
			delete(m.pods, uid)
		}
	}
	m.metrics.inUse(m.book.InUse())
	m.deleteSlices(ctx)
	known := m.synced && m.plugged
	m.idle.Store(known && len(m.pods)+len(m.book) == 0 && m.health.Next().IsZero() && !m.dirty && m.stale.Done())
}

// findGone finds pods that are in the book and not on the node: they were deleted by force, or while nobody ran here.
func (m *Manager) findGone() {
	for _, c := range m.book {
		for uid := range c.Pods {
			if m.pods[uid] == nil {
				m.add(uid).ended = true
			}
		}
	}
}

// inOrder are the pods in the order in which they came.
func inOrder(pods map[types.UID]*pod) []*pod {
	return slices.SortedFunc(maps.Values(pods), func(x, y *pod) int { return cmp.Compare(x.order, y.order) })
}

// next does what is due for the pod.
func (m *Manager) next(ctx context.Context, p *pod) {
	switch {
	case !p.idle():
	case !p.ended && p.wanted != nil:
		m.prepare(ctx, p)
	case m.now().Before(p.notBefore):
	case p.ended:
		m.release(ctx, p)
	case p.stage != Judged || m.book.Knows(p.uid):
		m.begin(ctx, p)
	}
}

// rest is how long nothing has to be done if nothing happens.
func (m *Manager) rest() time.Duration {
	now := m.now()
	at := now.Add(period)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	for _, p := range m.pods {
		if p.idle() && p.notBefore.After(now) {
			sooner(p.notBefore)
		}
	}
	sooner(m.health.Next())
	if m.ports.Slices != nil {
		sooner(m.stale.Next())
	}
	return max(0, at.Sub(now))
}

// view is what the decisions need to know.
func (m *Manager) view() claims.View {
	return claims.View{Registered: m.drivers.Registered, Leaving: func(uid types.UID) bool {
		p := m.pods[uid]
		return p != nil && p.ended
	}}
}

// save writes the book, if it has changed.
func (m *Manager) save() error {
	if !m.dirty {
		return nil
	}
	if err := m.pulse.during(func() error { return state.WriteClaims(m.cfg.RootDir, m.book) }); err != nil {
		return err
	}
	m.dirty = false
	return nil
}

// arrived takes a driver that can be called since now.
func (m *Manager) arrived(driver string) {
	for _, p := range m.pods {
		if slices.Contains(p.lacks, driver) {
			p.arrived()
		}
	}
}

// reported takes what a driver reports of its devices.
func (m *Manager) reported(driver string, list []health.Report) {
	if m.health.Update(driver, list, m.now()) {
		m.saveHealth()
	}
}

func (m *Manager) saveHealth() {
	if err := m.pulse.during(func() error { return state.WriteHealth(m.cfg.RootDir, m.health) }); err != nil {
		m.log.Error("can't keep the health of devices", "error", err)
	}
}

// deleteSlices deletes the ResourceSlices of drivers that are gone.
func (m *Manager) deleteSlices(ctx context.Context) {
	if m.ports.Slices == nil || !m.plugged {
		return
	}
	m.stale.See(m.drivers.Connected(), m.now())
	for _, d := range m.stale.Due(m.now()) {
		selector := d.Selector(m.cfg.Node)
		m.loop.Go(func() {
			limited, cancel := context.WithTimeout(ctx, deleteLimit)
			defer cancel()
			err := m.ports.Slices.DeleteResourceSlices(limited, selector)
			if apierrors.IsNotFound(err) {
				err = nil // the API server has no such objects at all
			}
			m.loop.Do(ctx, func() {
				m.stale.Ended(d, err != nil, m.now())
				switch {
				case err == nil:
					m.log.Info("deleted the ResourceSlices of drivers that are gone", "selector", selector)
				case d.Failures() == 1 || d.Failures()%10 == 0:
					m.log.Warn("can't delete the ResourceSlices of drivers that are gone, retrying", "selector", selector,
						"failures", d.Failures(), "error", err)
				}
			})
		})
	}
}
