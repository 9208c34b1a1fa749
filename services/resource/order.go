package resource

import (
	"errors"
	"slices"
	"time"

	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/devices"
)

// overdue is how long after its deadline the end of a pod is waited for that nobody wants any more.
const overdue = 30 * time.Second

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
