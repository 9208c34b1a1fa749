package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
)

// InProcess is how the daemons of a group reach a bus that is one of them. It outlives each life of the bus. A nil
// InProcess is that of a process without a group: nobody connects by it.
type InProcess struct {
	mu      sync.Mutex
	life    int
	connect func() (net.Conn, error)
}

var errNoBus = errors.New("the bus in this process isn't up")

// Serve is called by a bus that can be connected to, and the returned function when that is over.
func (p *InProcess) Serve(connect func() (net.Conn, error)) (end func()) {
	if p == nil {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.life++
	life := p.life
	p.connect = connect
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.life == life {
			p.connect = nil
		}
	}
}

// Dial connects to the bus as it is now.
func (p *InProcess) Dial(context.Context) (net.Conn, error) {
	p.mu.Lock()
	connect := p.connect
	p.mu.Unlock()
	if connect == nil {
		return nil, errNoBus
	}
	return connect()
}
