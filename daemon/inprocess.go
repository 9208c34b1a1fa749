package daemon

import (
	"context"
	"errors"
	"net"
	"sync"
)

// InProcess connects the daemons of a group to a bus that is one of them. It outlives each life of the bus. In a
// process without a group it is nil.
type InProcess struct {
	mu      sync.Mutex
	life    int
	connect func() (net.Conn, error)
}

var errNoBus = errors.New("the bus in this process is not running")

// Serve is called by a bus when it takes connections. The bus calls the returned function when it no longer does.
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
