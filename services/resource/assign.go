package resource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/turns"
)

// tryAgain is the pause before a plugin is asked again that was away, or didn't answer.
const tryAgain = 5 * time.Second

// reasonUnexpected is that of a refusal that has none of its own.
const reasonUnexpected = "UnexpectedAdmissionError"

// Plugins are the device plugins, as far as their resources are concerned.
type Plugins interface {
	// Preferred asks which of the available devices the plugin would take; nil where it has no preference.
	Preferred(ctx context.Context, resource string, available, mustInclude []string, size int) ([]string, error)
	// Allocate gives devices to a container. It returns the plugin's answer, a v1beta1.ContainerAllocateResponse in
	// protobuf's encoding.
	Allocate(ctx context.Context, resource string, ids []string) ([]byte, error)
	// Options are what the plugin of the resource wants to be asked, also while it is away. The flag is false where
	// there was none.
	Options(resource string) (deviceplugin.Options, bool)
	// PreStart makes devices ready for the start of their container.
	PreStart(ctx context.Context, resource string, ids []string) error
}

// begin reserves what the pod asks for, all at once, so that no other pod comes between its containers. Plugins are
// asked outside of the loop, which stays free for others meanwhile.
func (s *Service) begin(ctx context.Context, uid string, p *pod) {
	alive := ctx
	ctx, p.cancel = context.WithCancelCause(alive)
	p.held = s.holdings.pods()[uid]
	began := time.Now()
	reserved, err := s.holdings.reserve(p.spec)
	tally := s.holdings.tally
	p.chosen, p.taking = p.chosen || err == nil, err == nil
	if err == nil || p.waiting == "" { // else no plugin is asked, and what it waits for is still true
		p.waiting = "waiting for device plugins to allocate its devices"
	}
	var asked turns.Turn
	switch {
	case err == nil:
		asked = s.turns.Take(s.holdings.devices.Needs(p.spec))
	case !p.held:
		s.release(uid) // at once: it is the next pod's
	}
	s.loop.Go(func() {
		if err == nil {
			err = asked.Wait(ctx)
		}
		for err == nil && reserved.Next() != "" {
			err = s.assignDevices(ctx, reserved)
		}
		asked.End(s.loop.Go)
		took := time.Since(began)
		if err == nil {
			err = s.keep(ctx, uid)
		}
		s.loop.Do(alive, func() {
			reserved.Drop()
			if s.end(uid, p, err); p.assigned || p.refused != nil {
				s.holdings.metrics.Took(took)
				for _, count := range tally {
					count()
				}
			}
		})
	})
}

// keep has on the disk what the pod has got. A pod that has nothing doesn't wait for the disk.
func (s *Service) keep(ctx context.Context, uid string) error {
	has, err := ask(ctx, s.loop, func() (bool, error) { return s.holdings.pods()[uid], nil })
	if err != nil || !has {
		return err
	}
	return s.store.Save(ctx)
}

// end takes the end of an assignment.
func (s *Service) end(uid string, p *pod, err error) {
	p.stop(nil)
	taken := p.taking
	p.waiting, p.taking, p.behind, p.changed, s.changed = "", false, false, true, true
	if taken {
		wakeBehind(s.pods)
	}
	switch {
	case s.pods[uid] != p: // it is gone; another one of its UID waits for this
		delete(s.going, uid)
		s.release(uid)
	case p.ended():
		s.release(uid) // meanwhile
	case err == nil:
		p.assigned = true
		s.holdings.got(p.spec)
	default:
		// What its containers may run with stays its own until it has ended. Others would get it too.
		if !p.held {
			s.release(uid)
		}
		failed(s, uid, p, err, !taken && curable(err) && mayFree(s))
	}
	if p.assigned {
		s.seeClaims(p)
	}
}

// failed decides what becomes of a pod that doesn't get what it asks for. behind is true where others may free it.
func failed(s *Service, uid string, p *pod, err error, behind bool) {
	log := s.env.Log.With("pod", p.spec.Name, "namespace", p.spec.Namespace, "uid", uid)
	if p.lost.IsZero() && p.mayPass(err) {
		p.lost = s.now()
	}
	until := p.lost.Add(devices.Grace)
	switch {
	case p.mayPass(err) && s.now().Before(until):
		p.waiting, p.notBefore = fmt.Sprintf("%v; until %s", err, until.UTC().Format(time.RFC3339)), s.now().Add(tryAgain)
	case !s.known.settled:
		// Pods that are gone may have what it lacks. A refusal is final.
		p.waiting = "waiting for all sources of pods, since pods that are gone may have what it asks for: " + err.Error()
		p.notBefore = s.now().Add(idle)
	case p.last() == topic.Allocated && (p.held || len(s.holdings.devices.Needs(p.spec)) == 0):
		// Its CPUs and memory may have been released, so that it shares them. Without its devices it can't do.
		p.assigned = true
		log.Warn("a pod keeps what it has, though it would not get it again", "error", err)
	case behind:
		p.waiting = "waiting for other pods that may get less than is kept for them, or end: " + err.Error()
		p.behind, p.notBefore = true, s.now().Add(tryAgain)
	default:
		p.refused = refuse(err)
		s.holdings.metrics.Refused(s.holdings.policy)
		log.Warn("a pod can't have what it asks for", "reason", p.refused.reason, "message", p.refused.message)
	}
}

// mayPass reports whether the assignment failed because a plugin went or hung meanwhile. Its end may be noticed before
// its call fails: then none of its devices is healthy. Nor is one while a plugin that is back lists none yet.
func (p *pod) mayPass(err error) bool {
	return errors.Is(err, deviceplugin.ErrAway) || errors.Is(err, deviceplugin.ErrSlow) ||
		p.chosen && errors.Is(err, devices.ErrUnhealthy)
}

// refuse is what the pod's status says of the error.
func refuse(err error) *refusal {
	var r reasoned
	if errors.As(err, &r) {
		return &refusal{r.Reason(), r.Error()}
	}
	return &refusal{reasonUnexpected, fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
}

// assignDevices gives a container the devices of one resource that are the first of what is reserved for its pod. They
// may become others: those that the plugin prefers.
func (s *Service) assignDevices(ctx context.Context, reserved *devices.Reservation) error {
	resource := reserved.Next()
	choice, err := ask(ctx, s.loop, reserved.Offer)
	if err != nil {
		return err
	}
	var preferred []string
	if choice.Open() {
		if preferred, err = s.plugins.Preferred(ctx, resource, choice.Available(), choice.Fixed, choice.Size); err != nil {
			return err
		}
	}
	ids, err := ask(ctx, s.loop, func() ([]string, error) { return reserved.Prefer(preferred) })
	if err != nil {
		return err
	}
	response, err := s.plugins.Allocate(ctx, resource, ids)
	if err != nil {
		return err
	}
	_, err = ask(ctx, s.loop, func() (bool, error) { return reserved.Confirm(response), nil })
	return err
}

// ask has a question that may fail answered in the loop.
func ask[T any](ctx context.Context, l *loop.Loop, question func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	a, gone := loop.Ask(ctx, l, func() (a answer) {
		a.value, a.err = question()
		return a
	})
	if gone != nil {
		return a.value, gone
	}
	return a.value, a.err
}

// preStart answers resource.prestart: a container is about to start.
func (s *Service) preStart(ctx context.Context, req topic.PreStartRequest) (topic.PreStartReply, error) {
	due, err := onceTold(ctx, func() (start, error) {
		return ask(ctx, s.loop, func() (start, error) { return starting(s, req) })
	})
	if err == nil && due.freed {
		err = s.store.Save(ctx) // nobody is told again which of the pod's containers have ended
	}
	if err != nil {
		return topic.PreStartReply{}, err
	}
	// Side by side: each may take its whole time.
	made := make(chan error)
	for resource, list := range due.ids {
		go func() { made <- s.plugins.PreStart(ctx, resource, list) }()
	}
	for range due.ids {
		err = errors.Join(err, <-made)
	}
	return topic.PreStartReply{}, err
}

// start is what the start of a container has brought about: devices that their plugins are to make ready, by
// resource, and whether memory has become free.
type start struct {
	ids   map[string][]string
	freed bool
}

// starting takes note that a container is about to start.
func starting(s *Service, req topic.PreStartRequest) (due start, err error) {
	if !s.known.pods {
		return due, errUntold
	}
	p := s.pods[req.UID]
	if p != nil && s.holdings.memory.Starting(p.spec, req.Container) {
		due.freed, p.changed, s.changed = true, true, true
	}
	// Or an attempt before has freed some, and the disk may not have it yet.
	due.freed = due.freed || s.store.Busy() && len(s.holdings.memory.Blocks(req.UID, req.Container)) > 0
	due.ids = map[string][]string{}
	for _, d := range s.holdings.devices.Assigned(req.UID)[req.Container] {
		if s.publisher.needsPreStart(d.Resource, p != nil && p.toldBefore(req.Container)) {
			due.ids[d.Resource] = append(due.ids[d.Resource], d.ID)
		}
	}
	return due, nil
}
