package worker

import "time"

// leastPreemption is how long a pod waits at least for others that don't end.
const leastPreemption = 10 * time.Second

// Room is what a pod waits for that others were ended for. A zero Room is there at once.
type Room struct {
	ends  []<-chan struct{}
	until time.Time
}

// Await adds the end of a pod with that grace period. Where it doesn't end, half as long again is waited for it.
func (r *Room) Await(w *Worker, grace time.Duration) {
	r.ends = append(r.ends, w.over)
	if until := time.Now().Add(max(grace*3/2, leastPreemption)); until.After(r.until) {
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

// due is when the wait is over by time alone; zero for never.
func (r *Room) due(now time.Time) time.Time {
	if len(r.ends) == 0 || !now.Before(r.until) {
		return time.Time{}
	}
	return r.until
}
