package resource

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/pause"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/podspec"
	"kubelot.dev/services/resource/internal/dra/claims"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/podresources"
)

var errUntold = errors.New("the node's pods are not all known yet (pod.sources, by kubelot-podsync)")

// untoldFor bounds how long a client waits for a daemon that has just started: the one that has woken it asks before
// the bus has told of the pods. untoldEvery is how often it is looked whether it has.
const untoldFor, untoldEvery = 5 * time.Second, 20 * time.Millisecond

// source is what the PodResources API shows.
type source struct{ *Service }

// Pods are all pods of the node with what they have.
func (s source) Pods(ctx context.Context) (pods []podresources.Pod, err error) {
	return onceTold(ctx, func() ([]podresources.Pod, error) { return s.podsNow(ctx) })
}

// onceTold asks the question until the answer is another one than errUntold, for some time.
func onceTold[T any](ctx context.Context, question func() (T, error)) (T, error) {
	for end := time.Now().Add(untoldFor); ; pause.For(ctx, untoldEvery) {
		answer, err := question()
		if !errors.Is(err, errUntold) || !time.Now().Before(end) {
			return answer, err
		}
	}
}

// podsNow is Pods, or errUntold where they aren't all known yet.
func (s source) podsNow(ctx context.Context) ([]podresources.Pod, error) {
	return ask(ctx, s.loop, func() ([]podresources.Pod, error) {
		// What was known once still is while a podsync that has started again waits for the API server. A source of
		// manifests that never answers is waited for by nobody who asks.
		untold := len(s.sources.Waiting) == 0 || slices.Contains(s.sources.Waiting, topic.SourceAPI)
		if !s.known.settled && (!s.known.pods || untold) {
			return nil, errUntold
		}
		all := make([]podresources.Pod, 0, len(s.all))
		for uid, update := range s.all {
			one := podresources.Pod{Update: update}
			if p := s.pods[uid]; p != nil {
				if p.wantsClaims() && p.claims == nil && p.last() == topic.Allocated {
					return nil, errUntold // a moment after the start
				}
				one.Containers = s.held(uid, p)
				if p.refused != nil {
					one.Phase = corev1.PodFailed
				}
			}
			all = append(all, one)
		}
		return all, nil
	})
}

// held is what the pod's containers have.
func (s source) held(uid string, p *pod) map[string]podresources.Resources {
	held, assigned := map[string]podresources.Resources{}, s.holdings.devices.Assigned(uid)
	for c := range podspec.InitAndMain(&p.spec.Spec) {
		var r podresources.Resources
		for _, d := range assigned[c.Name] {
			r.Devices = append(r.Devices, podresources.Device{Resource: d.Resource, ID: d.ID, NUMANodes: d.Nodes})
		}
		if cpus, exclusive := s.holdings.cpus.Exclusive(types.UID(uid), c.Name); exclusive {
			r.CPUs = cpus.List()
		}
		r.Memory = blocks(s.holdings.memory.Blocks(uid, c.Name))
		if p.claims != nil {
			r.Claims = used(p.claims.Uses[c.Name])
		}
		held[c.Name] = r
	}
	return held
}

// Allocatable is what the node has for containers.
func (s source) Allocatable(ctx context.Context) (podresources.Resources, error) {
	return ask(ctx, s.loop, func() (r podresources.Resources, err error) {
		for resource, list := range s.holdings.devices.Allocatable() {
			for _, d := range list {
				r.Devices = append(r.Devices, podresources.Device{Resource: resource, ID: d.ID, NUMANodes: d.Nodes})
			}
		}
		r.CPUs = s.holdings.cpus.Allocatable().List()
		r.Memory = blocks(s.holdings.memory.Allocatable())
		return r, nil
	})
}

func blocks(list []memory.Block) (out []podresources.Memory) {
	for _, b := range list {
		out = append(out, podresources.Memory{Type: string(b.Type), Size: b.Size, NUMANodes: b.Nodes})
	}
	return out
}

func used(uses []claims.Use) (out []podresources.Claim) {
	for _, use := range uses {
		c := podresources.Claim{Namespace: use.Namespace, Name: use.Name}
		for _, d := range use.Devices {
			device := podresources.ClaimDevice{Driver: d.Driver, Pool: d.Pool, Device: d.Name, CDI: d.CDI}
			if d.ShareID != "" {
				device.ShareID = &d.ShareID
			}
			c.Devices = append(c.Devices, device)
		}
		out = append(out, c)
	}
	return out
}
