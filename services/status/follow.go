package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// watches is how many topics follow reads.
const watches = 7

// change is one step of the world: a message from the bus, or the end of a topic's retained ones.
type change struct {
	topic string
	apply func(*world) // nil at the end of the retained messages
}

// follow reads all topics into one channel.
func (s *Service) follow(ctx context.Context) (<-chan change, error) {
	out := make(chan change)
	f := follower{ctx: ctx, service: s, out: out}
	watch(&f, topic.PodUpdate, (*world).setPod, (*world).dropPod)
	watch(&f, topic.PodObject, (*world).setObject, (*world).dropObject)
	watch(&f, topic.StatusPatch, func(w *world, uid string, v topic.PodStatus) { w.setPatch(uid, v, time.Now()) }, (*world).dropPatch)
	watch(&f, topic.ProbeResult, probed((*world).setProbe), func(w *world, key string) {
		probed(func(w *world, uid, container, kind string, _ topic.Probe) { w.dropProbe(uid, container, kind) })(w, key, topic.Probe{})
	})
	watch(&f, topic.PodMirror, (*world).setMirror, (*world).dropMirror)
	watch(&f, topic.PodSources, func(w *world, _ string, v topic.Sources) { w.setSources(v) }, func(w *world, _ string) { w.setSources(topic.Sources{}) })
	watch(&f, topic.NodeObject, func(w *world, _ string, v corev1.Node) { w.setNode(v) }, func(*world, string) {})
	return out, f.err
}

// probed splits the key "<uid>.<container>.<kind>".
func probed(f func(w *world, uid, container, kind string, v topic.Probe)) func(*world, string, topic.Probe) {
	return func(w *world, key string, v topic.Probe) {
		if tokens := strings.Split(key, "."); len(tokens) == 3 {
			f(w, tokens[0], tokens[1], tokens[2], v)
		}
	}
}

type follower struct {
	ctx     context.Context
	service *Service
	out     chan<- change
	err     error
}

// watch turns a topic's changes into steps of the world.
func watch[T any](f *follower, t bus.State[T], set func(*world, string, T), drop func(*world, string)) {
	if f.err != nil {
		return
	}
	in, err := t.Watch(f.ctx, f.service.env.Bus)
	if err != nil {
		f.err = fmt.Errorf("read %s: %w", t.Name(), err)
		return
	}
	f.service.wg.Go(func() {
		for c := range in {
			step := change{topic: t.Name()}
			switch {
			case c.Deleted:
				step.apply = func(w *world) { drop(w, c.Key) }
			case !c.Synced:
				step.apply = func(w *world) { set(w, c.Key, c.Value) }
			}
			select {
			case f.out <- step:
			case <-f.ctx.Done():
			}
		}
	})
}
