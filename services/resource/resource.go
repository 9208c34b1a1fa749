package resource

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/store"
	"kubelot.dev/services/resource/internal/turns"
)

// Service is the resource daemon. Its Run is the goroutine that owns the state.
type Service struct {
	env      daemon.Env
	problems *daemon.Problems
	loop     *loop.Loop
	// plugins are the device plugins; claims are nil where there is no API server.
	plugins  Plugins
	announce announced
	claims   Claims
	store    *store.Store[snapshot]
	now      func() time.Time

	holdings *holdings
	// pods are those that have something or want it, all are all; both by UID.
	pods map[string]*pod
	all  map[string]topic.Pod
	// registered are the plugins of plugins_registry.
	registered map[string]topic.Plugin
	sources    topic.Sources
	known      known
	// changed is true where what is said of the node or of some pods (pod.changed) may have changed.
	changed bool
	// going are UIDs of pods that are gone and whose assignment is still under way.
	going     map[string]bool
	turns     turns.Turns
	found     recalled
	publisher publisher
	nap       nap
}

// known is what has become known since the start.
type known struct {
	// pods is true once the bus has told which pods there are, plugins once it has told of all plugins.
	pods, plugins bool
	// settled is true once nobody has anything any more who is gone; counted once the claims know all pods, too.
	settled, counted bool
}

// New makes the daemon, whose plugins and claims are to be set. save writes the state files. It starts nothing.
func New(env daemon.Env, h *holdings, save func(snapshot) error) *Service {
	s := &Service{
		env: env, problems: daemon.NewProblems(env.Health, ""), loop: loop.New(env.Bus), holdings: h, pods: map[string]*pod{},
		all: map[string]topic.Pod{}, registered: map[string]topic.Plugin{}, going: map[string]bool{},
		turns: turns.Turns{}, changed: true, now: time.Now,
	}
	s.store = store.New(store.Config[snapshot]{Snapshot: s.snapshot, Write: save, Problems: s.problems, Log: env.Log})
	return s
}

// Run does the daemon's work until ctx ends. What pods have stays as it is.
func (s *Service) Run(ctx context.Context) error {
	defer s.loop.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the resource daemon stops"))
	s.publisher = publisher{
		holdings: s.holdings, plugins: s.plugins, claimless: s.claims == nil, log: s.env.Log,
		unpinned: s.found.unpinned, leftover: s.found.gone,
		allocations: topic.PodAllocation.Writer(s.env.Bus), node: topic.ResourcesOfNode.Writer(s.env.Bus),
	}
	s.holdings.devices.Left(s.found.gone, nil) // none has gone since the start yet
	if err := s.follow(ctx); err != nil {
		return err
	}
	s.loop.Go(func() { s.store.Run(ctx) })
	s.store.Soon()
	serving := make(chan error, 1)
	s.loop.Go(func() { serving <- topic.ResourcePreStart.Serve(ctx, s.env.Bus, s.preStart) })
	s.env.Pulse.Of(ctx, s.loop.Inbox())
	s.problems.Set("", nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-serving:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case change := <-s.loop.Changes():
			change()
		case <-s.claimChanges():
			s.takeClaims()
		case <-timer.C:
		}
		timer.Reset(s.advance(ctx, s.now()))
	}
}

// follow has the loop handle the changes of what the daemon reads.
func (s *Service) follow(ctx context.Context) error {
	return errors.Join(
		loop.Follow(ctx, s.loop, topic.PodUpdate, s.podUpdate),
		loop.Follow(ctx, s.loop, topic.PodSources, func(c bus.Change[topic.Sources]) {
			if !c.Synced && !c.Deleted {
				s.sources = c.Value
			}
		}),
		loop.Follow(ctx, s.loop, topic.PluginRegistered, s.plugin),
		loop.Follow(ctx, s.loop, topic.NodeObject, func(c bus.Change[corev1.Node]) {
			if !c.Synced && !c.Deleted && c.Value.UID != "" {
				if s.holdings.untold { // from now on a file tells
					s.store.Soon()
				}
				s.publisher.leave(&c.Value)
				s.changed = true
			}
		}),
	)
}

// podUpdate takes what podsync says of a pod.
func (s *Service) podUpdate(c bus.Change[topic.Pod]) {
	switch {
	case c.Synced:
		s.known.pods = true
	case c.Deleted:
		s.forget(c.Key)
	case c.Value.Pod != nil:
		s.begins(c.Key, c.Value)
		if _, known := s.all[c.Key]; !known {
			s.holdings.arrives(c.Value, s.known.pods)
		}
		s.all[c.Key] = c.Value
		s.found.tell(s.env.Events, c.Value.Pod, s.now())
		// One that asks for nothing may have something: podsync ends orphans so.
		if c.Value.Allocates || s.pods[c.Key] != nil || s.holdings.pods()[c.Key] {
			s.see(c.Key, c.Value)
		} else if _, said := s.found.before[c.Key]; said {
			// Under another policy it had something. podsync goes by what is said as long as it is said.
			delete(s.found.before, c.Key)
			s.publisher.forget(c.Key)
		}
	}
}

// begins begins another life of a pod that the daemon knows: a static pod comes again under its UID, and the bus may
// leave out that it was gone. podsync has forgotten what was said of its earlier life.
func (s *Service) begins(uid string, v topic.Pod) {
	p := s.pods[uid]
	switch {
	case p == nil:
	case p.ended() && v.Lifecycle == topic.Syncing:
		s.forget(uid)
	case !p.firstSeen.Equal(v.FirstSeen):
		// It may as well be the same life, of which podsync has lost the beginning: it keeps what it has.
		s.publisher.forget(uid)
		p.stated, p.before = nil, nil
	}
}

func (s *Service) see(uid string, v topic.Pod) {
	p := s.pods[uid]
	if p == nil {
		p = &pod{}
		if before, said := s.found.before[uid]; said {
			p.before = &before
		}
		s.pods[uid] = p
	}
	p.spec, p.firstSeen, p.lifecycle, p.sandboxed = v.Pod, v.FirstSeen, v.Lifecycle, v.Sandboxed
	p.changed, s.changed = true, true
	s.seeClaims(p)
	if p.ended() {
		s.letGo(uid, p)
	}
}

// letGo takes everything from a pod that has ended. What is being assigned to it is taken when that has ended.
func (s *Service) letGo(uid string, p *pod) {
	if p.cancel != nil {
		p.stop(errEnded)
		return
	}
	s.release(uid)
}

var errEnded = errors.New("the pod has ended")

// forget drops a pod that is gone for good.
func (s *Service) forget(uid string) {
	delete(s.all, uid)
	p := s.pods[uid]
	if p == nil {
		// The bus may tell of an orphan's end only. Before the pods are known, dropUnknown sees to it.
		if s.known.settled {
			s.release(uid)
		}
		return
	}
	p.lifecycle = topic.Terminated
	delete(s.pods, uid)
	delete(s.found.before, uid)
	if p.cancel != nil {
		s.going[uid] = true
	}
	if s.claims != nil && p.wantsClaims() {
		s.claims.Forget(types.UID(uid))
	}
	s.letGo(uid, p)
	s.publisher.forget(uid)
}

// release takes everything from a pod.
func (s *Service) release(uid string) {
	if s.holdings.release(uid) {
		s.changed = true
		s.store.Soon()
		wakeBehind(s.pods)
	}
}

// advance decides what is due, says what is new, and returns when to come again at the latest.
func (s *Service) advance(ctx context.Context, now time.Time) time.Duration {
	if expired := s.holdings.devices.Expire(now); len(expired) > 0 {
		s.env.Log.Warn("the plugins of devices have not come back; the Node has none of them any more", "resources", expired)
		for _, p := range s.pods {
			p.changed = true
		}
		s.changed = true
		s.store.Soon()
	}
	s.dropUnknown()
	wake := now.Add(idle)
	var before []*pod
	for _, uid := range s.undecided() {
		p := s.pods[uid]
		if p.behind && overtakes(s.holdings.devices, p, before) {
			continue // it is woken when the earlier one is asked about again
		}
		wake = earlier(wake, s.decide(ctx, uid, p, now))
		before = append(before, p)
	}
	if s.changed {
		s.changed = false
		s.publisher.publish(s.pods, now)
		s.holdings.metrics.See(s.holdings.cpus)
	}
	wake = earlier(wake, s.holdings.devices.WakeAt())
	return max(earlier(wake, s.nap.look(ctx, func() bool { return needed(s) }, now)).Sub(now), time.Millisecond)
}

// undecided are the pods whose assignment is yet to begin, in the order of their arrival, and of their creation where
// they have come together. As long as the bus hasn't told of all pods, an earlier one may be missing.
func (s *Service) undecided() (uids []string) {
	if !s.known.pods {
		return nil
	}
	for uid, p := range s.pods {
		if p.undecided() && !s.going[uid] {
			uids = append(uids, uid)
		}
	}
	slices.SortFunc(uids, func(a, b string) int {
		x, y := s.pods[a], s.pods[b]
		created := x.spec.CreationTimestamp.Compare(y.spec.CreationTimestamp.Time)
		return cmp.Or(x.firstSeen.Compare(y.firstSeen), created, cmp.Compare(a, b))
	})
	return uids
}

// idle is how long the daemon sleeps when only news can change anything.
const idle = time.Hour

// earlier is the earlier of two times; zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// dropUnknown takes what pods have that nobody wants any more. That is known once all sources have told.
func (s *Service) dropUnknown() {
	if !s.known.pods || !s.sources.Ready {
		return
	}
	s.count()
	if s.known.settled {
		return
	}
	known := map[string]bool{}
	for _, uid := range s.sources.Pods {
		known[uid] = true
	}
	for uid := range s.all {
		known[uid] = true
	}
	for uid := range s.found.before {
		if !known[uid] {
			s.publisher.forget(uid)
		}
	}
	for uid := range s.holdings.pods() {
		if !known[uid] {
			s.env.Log.Info("taking back what a pod had that is gone", "uid", uid)
			s.release(uid)
		}
	}
	s.found.before, s.known.settled = nil, true
	s.holdings.devices.Settled(s.now())
	for _, p := range s.pods {
		p.notBefore = time.Time{}
	}
}

// count says that the claims know all pods, when podsync has told of each that the sources want. The word of the
// sources may come before: a claim that was unprepared then would be taken from containers that run.
func (s *Service) count() {
	if s.claims == nil || s.known.counted {
		return
	}
	for _, uid := range s.sources.Pods {
		if _, told := s.all[uid]; !told {
			return
		}
	}
	s.known.counted = true
	s.claims.Synced()
}

// decide begins the assignment of what the pod asks for, unless it has to wait: then the result is until when.
func (s *Service) decide(ctx context.Context, uid string, p *pod, now time.Time) time.Time {
	if s.claims == nil && p.wantsClaims() {
		p.refused = &refusal{reasonUnexpected, "claims of devices need an API server, which this node hasn't"}
		p.changed, s.changed = true, true
		return time.Time{}
	}
	if now.Before(p.notBefore) {
		return p.notBefore
	}
	if resource, until := s.awaits(p.spec, now); resource != "" {
		waiting := "waiting for the device plugin of " + resource + ", which was here before, to register again with " +
			"healthy devices"
		if !until.IsZero() {
			waiting += "; until " + until.UTC().Format(time.RFC3339)
		}
		if p.waiting != waiting {
			p.waiting, p.changed, s.changed = waiting, true, true
		}
		return until
	}
	s.begin(ctx, uid, p)
	p.changed, s.changed = true, true
	return time.Time{}
}

// awaits is a resource that the pod wants, doesn't have, and whose plugin was there before the start. It waits until
// then; zero where that isn't known yet.
func (s *Service) awaits(pod *corev1.Pod, now time.Time) (resource string, until time.Time) {
	has := s.holdings.devices.Assigned(string(pod.UID))
	for _, need := range s.holdings.devices.Needs(pod) {
		given := false
		for _, d := range has[need.Container] {
			given = given || d.Resource == need.Resource && !d.Stale
		}
		if until, waiting := s.holdings.devices.Waiting(need.Resource, now); waiting && !given {
			return need.Resource, until
		}
	}
	return "", time.Time{}
}
