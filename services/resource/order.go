package resource

import (
	"context"
	"errors"
	"slices"
	"time"

	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
)

// overdue is how long after its deadline the end of a pod is waited for that nobody wants any more.
const overdue = 30 * time.Second

// turns are those of the pods whose plugins are asked: by resource, the end of the last one. There are plugins that go by
// the order of the calls, and answer one pod with what is another's where calls overlap.
type turns map[string]<-chan struct{}

// turn is that of one pod, at the plugins of all its resources. The zero value is of a pod that needs none.
type turn struct {
	before []<-chan struct{}
	over   chan struct{}
}

// take takes the next turn at each plugin. Nobody waits in a circle: a pod takes all its turns at once.
func (t turns) take(needs []devices.Need) turn {
	mine := turn{over: make(chan struct{})}
	for _, need := range needs {
		if before := t[need.Resource]; before != nil && before != mine.over {
			mine.before = append(mine.before, before)
		}
		t[need.Resource] = mine.over
	}
	return mine
}

// wait waits for the ends of the turns before this one.
func (t turn) wait(ctx context.Context) error {
	for _, before := range t.before {
		select {
		case <-before:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// end ends the turn. A turn that was given up ends after those before it.
func (t turn) end() {
	if t.over != nil {
		close(t.over)
	}
}

// wakeBehind has the pods tried again that wait for others: something has become free, or won't.
func wakeBehind(pods map[string]*pod) {
	for _, p := range pods {
		if p.behind {
			p.notBefore = time.Time{}
		}
	}
}

// mayFree reports whether pods have what they may not keep: while it is assigned to them, or since nobody wants them
// any more. A kubelet knows neither: it admits one pod after the other, and forgets a pod that is deleted by force.
func mayFree(s *Service) bool {
	if len(s.going) > 0 {
		return true
	}
	has := s.holdings.pods()
	for uid, p := range s.pods {
		v := s.all[uid]
		ends := v.Removed && !p.ended() && (v.Deadline == nil || s.now().Before(v.Deadline.Add(overdue)))
		if p.taking || ends && has[uid] {
			return true
		}
	}
	return false
}

// curable reports whether a pod may get what it asks for once others have less.
func curable(err error) bool {
	var smt cpus.SMTAlignmentError
	return (!errors.As(err, &smt) || smt.Short) && !errors.Is(err, devices.ErrUnregistered) &&
		!errors.Is(err, devices.ErrUnhealthy)
}

// overtakes reports whether the pod would take a device that an earlier one is to get, which waits until its plugin is
// asked again.
func overtakes(book *devices.Book, p *pod, earlier []*pod) bool {
	for _, need := range book.Needs(p.spec) {
		for _, q := range earlier {
			if !q.lost.IsZero() && slices.ContainsFunc(book.Needs(q.spec), func(n devices.Need) bool {
				return n.Resource == need.Resource
			}) {
				return true
			}
		}
	}
	return false
}
