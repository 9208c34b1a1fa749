package daemon

import (
	"slices"
	"sync"
)

// hangups are the daemons of a process that read their configuration again on SIGHUP.
type hangups struct {
	mu  sync.Mutex
	all []*reloader
}

// add makes a daemon read its configuration again on SIGHUP until remove is called.
func (h *hangups) add(r *reloader) (remove func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, r)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = slices.DeleteFunc(h.all, func(o *reloader) bool { return o == r })
	}
}

func (h *hangups) reload() {
	h.mu.Lock()
	all := slices.Clone(h.all)
	h.mu.Unlock()
	for _, r := range all {
		r.reload()
	}
}
