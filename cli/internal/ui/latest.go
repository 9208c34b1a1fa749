package ui

import "sync"

// latest hands the newest value to any number of readers. A slow reader misses values and holds up nobody.
type latest struct {
	mu      sync.Mutex
	value   []byte
	changed chan struct{} // closed and replaced with each value
}

func newLatest() *latest { return &latest{changed: make(chan struct{})} }

func (l *latest) set(value []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.value = value
	close(l.changed)
	l.changed = make(chan struct{})
}

// get returns the newest value, nil if there is none yet, and a channel that is closed when there is another.
func (l *latest) get() ([]byte, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.value, l.changed
}
