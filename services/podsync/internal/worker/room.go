package worker

import "time"

// Room is what a pod waits for that others were ended for. A zero Room is there at once.
type Room struct {
	// Beside is true where others that leave may be there still when it is over.
	Beside bool

	ends  []<-chan struct{}
	until time.Time
}

// Await adds the end of a pod that is waited for at most until then.
func (r *Room) Await(w *Worker, until time.Time) {
	r.ends = append(r.ends, w.over)
	if until.After(r.until) {
		r.until = until
	}
}

// next is the end that is waited for; nil for none.
func (r *Room) next() <-chan struct{} {
	if len(r.ends) == 0 {
		return nil
	}
	return r.ends[0]
}

func (r *Room) ended() { r.ends = r.ends[1:] }

// Pending reports whether something is waited for still. The worker waits with a copy of its own.
func (r Room) Pending(now time.Time) bool {
	for _, end := range r.ends {
		select {
		case <-end:
		default:
			return now.Before(r.until)
		}
	}
	return false
}

// due is when the wait is over by time alone; zero for never.
func (r *Room) due(now time.Time) time.Time {
	if len(r.ends) == 0 || !now.Before(r.until) {
		return time.Time{}
	}
	return r.until
}
