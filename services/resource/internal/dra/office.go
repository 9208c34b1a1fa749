package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/loop"
	"kubelot.dev/services/resource/internal/dra/claims"
)

// Office answers what people ask of claims. One without a manager has none.
type Office struct{ m *Manager }

// OfficeOf is the office of a manager, which may not run yet.
func OfficeOf(m *Manager) Office { return Office{m} }

// List answers resource.claims: the claims that pods of this node have, or whose drivers have not given them back.
func (o Office) List(ctx context.Context, _ topic.ClaimsRequest) (reply topic.ClaimsReply, err error) {
	if o.m == nil {
		return reply, nil
	}
	if reply.Claims, err = loop.Ask(ctx, o.m.loop, o.list); err != nil {
		return reply, bus.WithKind(bus.ErrUnavailable, err)
	}
	return reply, nil
}

func (o Office) list() []topic.HeldClaim {
	var all []topic.HeldClaim
	for _, c := range o.m.book.All() {
		held := topic.HeldClaim{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID)}
		for _, uid := range slices.Sorted(maps.Keys(c.Pods)) {
			held.Pods = append(held.Pods, o.user(uid))
		}
		for _, name := range c.DriverNames() {
			held.Drivers = append(held.Drivers, topic.ClaimDriver{
				Name: name, Standing: c.Drivers[name].Standing.String(), Registered: o.m.drivers.Registered(name),
			})
		}
		all = append(all, held)
	}
	return all
}

// user is a pod that has a claim. One that nobody has spoken of yet has not ended, as far as is known.
func (o Office) user(uid types.UID) topic.ClaimPod {
	used := topic.ClaimPod{Ref: topic.Ref{UID: string(uid)}}
	p := o.m.pods[uid]
	if p == nil {
		return used
	}
	used.Ended = p.ended
	if p.object != nil {
		used.Namespace, used.Name = p.object.Namespace, p.object.Name
	}
	return used
}

// Forget answers resource.forget: it takes the drivers of a claim that are gone for having given it back, so that its
// pods can go. It is refused as long as a pod runs with the claim or a driver is being called about it, and where no
// driver is gone.
func (o Office) Forget(ctx context.Context, req topic.ForgetRequest) (topic.ForgetReply, error) {
	name := types.NamespacedName{Namespace: req.Namespace, Name: req.Name}
	if o.m == nil {
		return topic.ForgetReply{}, unknown(name)
	}
	type answer struct {
		reply topic.ForgetReply
		err   error
	}
	a, gone := loop.Ask(ctx, o.m.loop, func() (a answer) {
		a.reply.Drivers, a.err = o.forget(name)
		return a
	})
	if gone != nil {
		return topic.ForgetReply{}, bus.WithKind(bus.ErrUnavailable, gone)
	}
	return a.reply, a.err
}

func (o Office) forget(name types.NamespacedName) ([]string, error) {
	c := o.m.book[name]
	if c == nil {
		return nil, unknown(name)
	}
	for uid := range c.Pods {
		if used := o.user(uid); !used.Ended {
			err := fmt.Errorf("pod %s/%s (UID %s) has the ResourceClaim %s and has not ended: delete the pod first",
				used.Namespace, used.Name, uid, name)
			return nil, bus.WithKind(bus.ErrRefused, err)
		}
	}
	drivers := o.m.book.Abandon(c, func(driver string) bool { return o.there(driver, c) })
	if len(drivers) == 0 {
		return nil, bus.WithKind(bus.ErrRefused, nothingToForget(c))
	}
	o.m.log.Warn("drivers are gone, and by the command line they are no longer asked to give back a ResourceClaim",
		"namespace", name.Namespace, "claim", name.Name, "drivers", drivers)
	o.m.dirty = true
	for _, driver := range drivers {
		o.m.arrived(driver)
	}
	if err := o.m.save(); err != nil {
		return drivers, fmt.Errorf("it is forgotten, but not beyond the end of this process: %w", err)
	}
	return drivers, nil
}

// there reports whether a driver is registered, unless it isn't connected and a call about the claim has failed: one
// that has died may have left its sockets.
func (o Office) there(driver string, c *claims.Claim) bool {
	connected, registered := o.m.drivers.Connected()[driver]
	failed := false
	for uid := range c.Pods {
		p := o.m.pods[uid]
		failed = failed || p != nil && slices.Contains(p.lacks, driver)
	}
	return registered && (connected || !failed)
}

// unknown is the error of a claim that the node doesn't know.
func unknown(name types.NamespacedName) error {
	return bus.WithKind(bus.ErrNotFound, fmt.Errorf("no pod of this node has or had the ResourceClaim %s", name))
}

func nothingToForget(c *claims.Claim) error {
	for _, name := range c.DriverNames() {
		if c.Drivers[name].Calling {
			return fmt.Errorf("the driver %s is being called about the ResourceClaim %s: try again when it has answered, "+
				"or the call has timed out", name, c.NamespacedName)
		}
	}
	for _, name := range c.DriverNames() {
		if c.Drivers[name].Standing != claims.Idle {
			return fmt.Errorf("the driver %s of the ResourceClaim %s is there, and is asked to give it back", name,
				c.NamespacedName)
		}
	}
	return errors.New("no driver has anything of it any more")
}
