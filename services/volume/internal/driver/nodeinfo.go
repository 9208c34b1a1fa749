package driver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
)

const (
	// firstAsk and lastAsk bound the pause after a driver has not told of the node.
	firstAsk, lastAsk = 500 * time.Millisecond, time.Minute
	// stalePause is how long a driver may be away after this process has begun before what an earlier one has published of
	// it goes: the registration of plugins may be still under way.
	stalePause = 30 * time.Second
	// leastRefresh bounds how often a driver is asked again because a volume could not be attached.
	leastRefresh = 10 * time.Second
)

// InfoPublisher is the writer of csi.driver.
type InfoPublisher interface {
	Set(key string, info topic.CSINodeInfo) error
	Delete(key string) error
}

// ReportPorts are what Report works with.
type ReportPorts struct {
	Out InfoPublisher
	// Published is what an earlier process has left on the bus: it stays while its driver may come back.
	Published map[string]topic.CSINodeInfo
	// Health hears of drivers that don't answer.
	Health daemon.HealthReporter
	Log    *slog.Logger
}

// reporter asks the registered drivers what they say of this node, and publishes it. It belongs to the goroutine of
// Report.
type reporter struct {
	ReportPorts

	drivers *Drivers
	// question asks a driver what it says of this node.
	question func(ctx context.Context, c *Client, name string) (topic.CSINodeInfo, error)
	// asking are the drivers that are being asked, by their names.
	asking map[string]*asking
	// silent is why drivers that are asked haven't told of the node.
	silent map[string]string
	// seen are the drivers that have registered since this process began.
	seen    map[string]bool
	began   time.Time
	workers sync.WaitGroup
}

// asking is one driver in the care of a goroutine.
type asking struct {
	instance string
	stop     context.CancelFunc
	// refresh has it asked again; period says that the time until then may be another.
	refresh, period chan struct{}
}

// told is what a driver has said, or why it has said nothing.
type told struct {
	from    *asking
	info    topic.CSINodeInfo
	problem string
}

// Report publishes what each registered driver says of this node until ctx ends.
func (d *Drivers) Report(ctx context.Context, ports ReportPorts) { newReporter(d, ports).run(ctx) }

func newReporter(d *Drivers, ports ReportPorts) *reporter {
	return &reporter{
		ReportPorts: ports, drivers: d, question: nodeInfo, asking: map[string]*asking{}, silent: map[string]string{},
		seen: map[string]bool{}, began: time.Now(),
	}
}

func (r *reporter) run(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer r.workers.Wait()
	defer stop()
	answers := make(chan told)
	stale := time.NewTimer(stalePause)
	defer stale.Stop()
	for {
		r.follow(ctx, answers)
		select {
		case <-ctx.Done():
			return
		case <-r.drivers.registrations:
		case name := <-r.drivers.refreshes:
			if a := r.asking[name]; a != nil {
				signal(a.refresh)
			}
		case <-r.drivers.periods:
			for _, a := range r.asking {
				signal(a.period)
			}
		case <-stale.C:
		case answer := <-answers:
			r.take(answer)
		}
	}
}

// signal makes a channel deliver once more, unless it is about to.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// follow begins with drivers that have registered, and ends with those that are gone.
func (r *reporter) follow(ctx context.Context, answers chan told) {
	now := r.drivers.instances()
	for name, a := range r.asking {
		if now[name] != a.instance {
			a.stop()
			delete(r.asking, name)
			r.setSilent(name, "")
		}
	}
	for name, instance := range now {
		r.seen[name] = true
		if r.asking[name] == nil {
			r.start(ctx, name, instance, answers)
		}
	}
	for key, info := range r.Published {
		_, still := now[info.Name]
		if still || (!r.seen[info.Name] && time.Since(r.began) < stalePause) {
			continue
		}
		if err := r.Out.Delete(key); err != nil {
			r.Log.Error("can't withdraw what a CSI driver said of this node", "driver", info.Name, "error", err)
			continue
		}
		delete(r.Published, key)
	}
}

func (r *reporter) start(ctx context.Context, name, instance string, answers chan told) {
	ctx, stop := context.WithCancel(ctx)
	a := &asking{instance: instance, stop: stop, refresh: make(chan struct{}, 1), period: make(chan struct{}, 1)}
	r.asking[name] = a
	r.workers.Go(func() {
		for ctx.Err() == nil {
			info, ok := r.ask(ctx, name, func(problem string) {
				send(ctx, answers, told{from: a, info: topic.CSINodeInfo{Name: name}, problem: problem})
			})
			if !ok || !send(ctx, answers, told{from: a, info: info}) {
				return
			}
			asked := time.Now()
			r.drivers.learn(ctx, name)
			pause.For(ctx, leastRefresh)
			r.rest(ctx, a, name, asked)
		}
	})
}

// rest waits until the driver is to be asked again.
func (r *reporter) rest(ctx context.Context, a *asking, name string, asked time.Time) {
	for {
		select {
		case <-a.period:
			continue // it is read again
		case <-ctx.Done():
		case <-a.refresh:
		case <-r.drivers.period(name, asked):
		}
		return
	}
}

// learn asks what the driver can do, for those who don't wait for its answer (Known). Those who do ask themselves.
func (d *Drivers) learn(ctx context.Context, name string) {
	if c := d.Client(name); c != nil {
		_, _ = c.Capabilities(ctx)
		c.Release()
	}
}

// send reports false if ctx ends first.
func send(ctx context.Context, answers chan<- told, t told) bool {
	select {
	case answers <- t:
		return true
	case <-ctx.Done():
		return false
	}
}

// ask asks until the driver answers or is gone. It fails with a text each time that the cause is another.
func (r *reporter) ask(ctx context.Context, name string, fail func(string)) (topic.CSINodeInfo, bool) {
	problem := ""
	for failures := 1; ; failures++ {
		c := r.drivers.Client(name)
		if c == nil {
			return topic.CSINodeInfo{}, false
		}
		info, err := r.question(ctx, c, name)
		c.Release()
		switch {
		case ctx.Err() != nil:
			return topic.CSINodeInfo{}, false
		case err == nil:
			return info, true
		}
		if text := err.Error(); text != problem {
			problem = text
			r.Log.Warn("a CSI driver doesn't say how it names this node, so its volumes can't come here, retrying",
				"driver", name, "error", text)
			fail(text)
		}
		pause.For(ctx, pause.After(failures, firstAsk, lastAsk))
	}
}

// take publishes what a driver says.
func (r *reporter) take(t told) {
	if r.asking[t.info.Name] != t.from {
		return
	}
	if r.setSilent(t.info.Name, t.problem); t.problem != "" {
		return
	}
	key := topic.CSIDriverKey(t.info.Name)
	if old, known := r.Published[key]; known && reflect.DeepEqual(old, t.info) {
		return
	}
	if err := r.Out.Set(key, t.info); err != nil {
		r.Log.Error("can't publish what a CSI driver says of this node", "driver", t.info.Name, "error", err)
		return
	}
	r.Published[key] = t.info
}

// setSilent notes why a driver hasn't told of the node; the empty text says that it has, or is gone.
func (r *reporter) setSilent(name, why string) {
	if why == r.silent[name] {
		return
	}
	r.silent[name] = why
	if why == "" {
		delete(r.silent, name)
	}
	state, texts := topic.Healthy, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(r.silent)) {
		state = topic.Degraded
		texts = append(texts, fmt.Sprintf("CSI driver %.80q doesn't say how it names this node, so its volumes can't come "+
			"here: %.200s", name, r.silent[name]))
	}
	r.Health.Set(state, strings.Join(texts, "; "))
}

// nodeInfo asks what the driver says of this node.
func nodeInfo(ctx context.Context, c *Client, name string) (topic.CSINodeInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("the driver has not answered for %s", callLimit))
	defer cancel()
	answer, err := c.Node.NodeGetInfo(ctx, &csiapi.NodeGetInfoRequest{})
	if err != nil {
		return topic.CSINodeInfo{}, fmt.Errorf("NodeGetInfo: %w", err)
	}
	info := topic.CSINodeInfo{
		Name: name, NodeID: answer.GetNodeId(), Topology: answer.GetAccessibleTopology().GetSegments(),
		MaxVolumes: max(0, answer.GetMaxVolumesPerNode()),
	}
	if err := info.Validate(); err != nil {
		return topic.CSINodeInfo{}, fmt.Errorf("NodeGetInfo: %s", Line(err.Error()))
	}
	return info, nil
}
