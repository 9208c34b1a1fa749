package resource

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/resource/internal/dra"
)

// Claims are the claims of devices that pods have (DRA); *dra.Manager is one.
type Claims interface {
	claimNews
	// Run prepares claims until ctx ends.
	Run(ctx context.Context) error
	// Changes delivers when Take has the status of some pods.
	Changes() <-chan struct{}
	Take() map[types.UID]dra.Status
	// Idle reports whether nothing is prepared, nor to be done.
	Idle() bool
}

// claimNews is what claims need to hear.
type claimNews interface {
	// Want says that the pod is to have its claims, Ended that no container of it runs any more, Forget that it is gone.
	Want(pod *corev1.Pod, stage dra.Stage)
	Ended(pod *corev1.Pod)
	Forget(uid types.UID)
	// Synced says that all pods have been told of.
	Synced()
	// Registered takes all plugins.
	Registered(plugins map[string]topic.Plugin)
}

// seeClaims tells what a pod's claims need to know of it.
func (s *Service) seeClaims(p *pod) {
	switch {
	case s.claims == nil || !dra.Used(p.spec):
	case p.ended():
		s.claims.Ended(p.spec)
	case p.sandboxed:
		s.claims.Want(p.spec, dra.Sandboxed)
	case p.assigned || p.last() == topic.Allocated:
		s.claims.Want(p.spec, dra.Admitted)
	default:
		s.claims.Want(p.spec, dra.Judged)
	}
}

// takeClaims takes how far the pods' claims are.
func (s *Service) takeClaims() {
	for uid, status := range s.claims.Take() {
		if p := s.pods[string(uid)]; p != nil {
			p.claims, p.changed, s.changed = &status, true, true
		}
	}
}

// claimChanges are those of the claims; nil, and so never, where there are none.
func (s *Service) claimChanges() <-chan struct{} {
	if s.claims == nil {
		return nil
	}
	return s.claims.Changes()
}

// wantsClaims reports whether the pod has claims of devices.
func (p *pod) wantsClaims() bool { return dra.Used(p.spec) }

// prepared reports whether the pod has its claims.
func (p *pod) prepared() bool {
	return !p.wantsClaims() || p.claims != nil && p.claims.Phase == topic.Allocated
}

// gaveBack reports whether an ended pod's claims are given back.
func (p *pod) gaveBack() bool {
	return !p.wantsClaims() || p.claims != nil && p.claims.Phase == topic.AllocationReleased
}
