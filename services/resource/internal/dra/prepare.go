package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"kubelot.dev/services/resource/internal/dra/claims"
	"kubelot.dev/services/resource/internal/dra/plugin"
)

// fetchLimit bounds the reading of a pod's claims.
const fetchLimit = 30 * time.Second

var errNoServer = errors.New("there is no API server to read ResourceClaims from")

// begin begins an attempt to prepare the pod's claims.
func (m *Manager) begin(ctx context.Context, p *pod) {
	p.begins(m.now())
	switch {
	case p.invalid != nil:
		m.fail(p, p.invalid)
	case m.book.Holds(p.object.Namespace, p.uid, p.needs):
		m.succeed(p)
	default:
		if p.failures == 0 {
			p.waits("reading its ResourceClaims")
		}
		m.fetch(ctx, p)
	}
}

// succeed ends the last attempt, once it is on the disk.
func (m *Manager) succeed(p *pod) {
	if err := m.save(); err != nil {
		m.fail(p, err)
		return
	}
	if p.ended {
		m.metrics.done(opUnprepare, false, p.took(m.now()))
		p.released = true
	} else {
		m.metrics.done(opPrepare, false, p.took(m.now()))
		p.prepared = true
	}
	p.finished()
	m.again = true
}

// fetch has the pod's claims read.
func (m *Manager) fetch(ctx context.Context, p *pod) {
	if m.ports.Claims == nil {
		m.fail(p, errNoServer)
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, fetchLimit, fmt.Errorf("no answer for %s", fetchLimit))
	// What the goroutine reads doesn't change: the daemon tells of a change with another object.
	f := &fetching{
		pod: p.object, needs: p.needs, users: m.book.Users(p.object.Namespace, p.needs), ended: p.ended,
		forbidden: p.failures >= forbiddenTries, api: m.ports.Claims, stop: cancel,
	}
	p.fetching = f
	m.loop.Go(func() {
		defer cancel()
		wanted, err := f.read(limited)
		m.loop.Do(ctx, func() {
			if p.fetching == f {
				p.fetching = nil
				m.fetched(p, wanted, err)
			}
		})
	})
}

// forbiddenTries is how often, in about a minute, the API server may refuse to show the claims of a pod that has ended.
const forbiddenTries = 6

// fetching is the reading of a pod's claims.
type fetching struct {
	pod   *corev1.Pod
	needs []claims.Need
	// users are the pods that used the claims when the reading began, by the claims' names.
	users map[string][]types.UID
	// ended is true for a pod that has ended: claims that it can't have had are left out. forbidden also leaves out those
	// that the API server doesn't show: it shows a node the claims of pods that it knows, some time after its own start.
	ended, forbidden bool
	api              ResourceClaims
	stop             context.CancelFunc
}

// read reads and judges the claims.
func (f *fetching) read(ctx context.Context) ([]claims.Wanted, error) {
	wanted := []claims.Wanted{}
	for _, n := range f.needs {
		claim, err := f.api.GetResourceClaim(ctx, f.pod.Namespace, n.Claim)
		switch {
		case err != nil && f.ended && (apierrors.IsNotFound(err) || f.forbidden && apierrors.IsForbidden(err)):
			continue
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.Claim, context.Cause(ctx))
		case err != nil:
			return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.Claim, err)
		}
		w, err := claims.Check(f.pod, n, claim, f.users[n.Claim])
		if err != nil && f.ended {
			continue
		}
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, w)
	}
	return wanted, nil
}

// fetched takes what the API server says of the pod's claims.
func (m *Manager) fetched(p *pod, wanted []claims.Wanted, err error) {
	switch {
	case err != nil:
		m.fail(p, err)
	case p.ended:
		p.adopted = true
		m.book.Adopt(p.uid, wanted)
		m.dirty = true
	default:
		p.wanted = wanted
	}
}

// prepare does what is due for a pod whose claims are known.
func (m *Manager) prepare(ctx context.Context, p *pod) {
	if m.book.Holds(p.object.Namespace, p.uid, p.needs) {
		m.succeed(p)
		return
	}
	step, err := m.book.Prepare(p.uid, p.wanted, m.view())
	m.dirty = m.dirty || step.Changed
	if err == nil {
		err = m.save()
	}
	switch {
	case err != nil:
		p.lacks = step.Lacks
		m.fail(p, err)
	case step.Done:
		m.succeed(p)
	case len(step.Calls) > 0:
		p.lacks = nil
		m.call(ctx, p, claims.CallPrepare, step.Calls)
	default:
		p.waits(strings.Join(step.Waits, ", "))
	}
}

// call calls the drivers, all at the same time.
func (m *Manager) call(ctx context.Context, p *pod, call string, calls claims.Calls) {
	calls.Begin()
	if p.failures == 0 {
		p.waits(fmt.Sprintf("waiting for %s of DRA driver %s", call, strings.Join(slices.Sorted(maps.Keys(calls)), ", ")))
	}
	for driver, asked := range calls {
		client := m.drivers.Acquire(driver) // it is registered: the decision says so
		about := make([]plugin.Question, 0, len(asked))
		for _, c := range asked {
			about = append(about, plugin.Question{NamespacedName: c.NamespacedName, UID: c.UID})
		}
		p.calls++
		m.loop.Go(func() {
			answers, err := client.Call(ctx, call, about)
			taken := m.loop.Do(ctx, func() {
				m.drivers.Release(client)
				if err != nil {
					p.lacks = append(p.lacks, driver)
				}
				m.answered(p, call, claims.Answered(call, driver, asked, answers, err))
			})
			if !taken {
				m.drivers.Abandon(client)
			}
		})
	}
}

// answered takes the end of a call; err is what the pod's user is to know.
func (m *Manager) answered(p *pod, call string, err error) {
	p.calls--
	if err != nil {
		p.problems = append(p.problems, err.Error())
	}
	m.dirty = true
	if err := m.save(); err != nil {
		p.problems = append(p.problems, err.Error())
	}
	if p.calls > 0 || len(p.problems) == 0 {
		return
	}
	slices.Sort(p.problems)
	text := strings.Join(slices.Compact(p.problems), ", ")
	if call == claims.CallUnprepare && len(p.lacks) > 0 {
		text += "; if the driver is gone for good, see kubelot claims forget"
	}
	if p.ended == (call == claims.CallPrepare) {
		// What was called for is over: the pod has ended since, or is back.
		p.log(m.log).Info("a call for a pod that has ended has failed", "error", text)
		p.problems = nil
		return
	}
	m.fail(p, errors.New(text))
}
