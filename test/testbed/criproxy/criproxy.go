// Package criproxy is a container runtime's socket that passes every call on, and spoils the answers that a test
// chooses.
//
// Reads: the runtime's socket. Writes and owns: a socket of its own.
//
// Guarantees: a call that no fault is set for reaches the runtime and its answer the caller, byte by byte; a fault
// holds until Heal.
package criproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// maxMessage is the size of a message that the kubelet accepts.
const maxMessage = 16 << 20

// Fault is what becomes of a call.
type Fault struct {
	// Err is what the caller is told instead of the runtime's answer.
	Err error
	// Garbage is an answer that is no message at all; it goes before Err.
	Garbage []byte
	// Done lets the runtime do what was asked before the answer is spoiled.
	Done bool
	// Delay is how late the answer comes. Where it is all that is set, the answer is the runtime's.
	Delay time.Duration
}

// Proxy is such a socket.
type Proxy struct {
	server *grpc.Server
	conn   *grpc.ClientConn
	served chan error

	mu     sync.Mutex
	faults map[string]Fault
	spoilt map[string]int
}

// Start listens at socket for the runtime at target; both are paths.
func Start(socket, target string) (*Proxy, error) {
	conn, err := grpc.NewClient("unix://"+target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(maxMessage),
			grpc.MaxCallSendMsgSize(maxMessage)))
	if err != nil {
		return nil, fmt.Errorf("start CRI proxy: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("start CRI proxy: %w", err)
	}
	p := &Proxy{conn: conn, served: make(chan error, 1), faults: map[string]Fault{}, spoilt: map[string]int{}}
	p.server = grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.MaxRecvMsgSize(maxMessage),
		grpc.UnknownServiceHandler(p.pass))
	go func() { p.served <- p.server.Serve(listener) }()
	return p, nil
}

// Stop ends the proxy and every call under way.
func (p *Proxy) Stop() error {
	p.server.Stop()
	if err := <-p.served; err != nil {
		return fmt.Errorf("CRI proxy: %w", err)
	}
	return p.conn.Close()
}

// Spoil sets the fault of a call, such as RunPodSandbox.
func (p *Proxy) Spoil(call string, f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults[call] = f
}

// Spoilt is how many answers to the call were spoilt since the last time.
func (p *Proxy) Spoilt(call string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spoilt[call]
}

// Heal ends all faults and tells how many answers were spoilt since the last time, by call.
func (p *Proxy) Heal() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	spoilt := p.spoilt
	p.faults, p.spoilt = map[string]Fault{}, map[string]int{}
	return spoilt
}

func (p *Proxy) faultOf(call string) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, found := p.faults[call]
	if found {
		p.spoilt[call]++
	}
	return f, found
}

// pass serves a call. No call of the CRI has more than one request.
func (p *Proxy) pass(_ any, caller grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(caller)
	var request []byte
	if err := caller.RecvMsg(&request); err != nil {
		return err
	}
	fault, spoilt := p.faultOf(path.Base(method))
	ctx := caller.Context()
	if spoilt = spoilt && (fault.Err != nil || fault.Garbage != nil); spoilt && !fault.Done {
		return fault.answer(caller)
	}
	runtime, err := p.ask(ctx, method, request)
	if err != nil {
		return err
	}
	for delay := fault.Delay; ; delay = 0 {
		var answer []byte
		err := runtime.RecvMsg(&answer)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		switch {
		case spoilt:
			return fault.answer(caller)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := caller.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// ask sends the request to the runtime.
func (p *Proxy) ask(ctx context.Context, method string, request []byte) (grpc.ClientStream, error) {
	if sent, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, sent)
	}
	runtime, err := p.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return nil, err
	}
	if err := runtime.SendMsg(&request); err != nil {
		return nil, err
	}
	return runtime, runtime.CloseSend()
}

func (f Fault) answer(caller grpc.ServerStream) error {
	if f.Garbage != nil {
		return caller.SendMsg(&f.Garbage)
	}
	return f.Err
}

// raw is the codec of messages that stay as they are.
type raw struct{}

// Name is no name, so that the content's type is application/grpc: CRI-O closes the connection at any other.
func (raw) Name() string { return "" }

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}
