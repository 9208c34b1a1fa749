package dra

import (
	"context"
	"fmt"
	"strings"

	"kubelot.dev/services/resource/internal/dra/claims"
)

// release does what is due for a pod that has ended.
func (m *Manager) release(ctx context.Context, p *pod) {
	p.begins(m.now())
	p.adopted = p.adopted || len(m.book.Of(p.uid)) > 0
	if m.lost && !p.adopted && p.object != nil && len(p.needs) > 0 && m.ports.Claims != nil {
		m.fetch(ctx, p)
		return
	}
	step := m.book.Release(p.uid, m.view())
	if step.Changed {
		m.dirty, m.again = true, true
	}
	if err := m.save(); err != nil {
		m.fail(p, err)
		return
	}
	switch {
	case step.Done:
		m.succeed(p)
	case len(step.Calls) > 0:
		p.lacks = step.Lacks
		m.call(ctx, p, claims.CallUnprepare, step.Calls)
	case len(step.Lacks) > 0:
		p.lacks = step.Lacks
		m.fail(p, fmt.Errorf("%w: the pod stays until its ResourceClaims are unprepared, install the driver again, "+
			"or see kubelot claims forget",
			claims.MissingError{Drivers: step.Lacks}))
	default:
		p.waits(strings.Join(step.Waits, ", "))
	}
}
