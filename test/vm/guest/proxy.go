package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
)

// pods is the network of the pods (files/cni.conflist). Only the machine has a route to it.
var pods = netip.MustParsePrefix("10.88.0.0/16")

// startProxy starts the proxy through which the API server connects to the node and to pods.
func (g *Guest) startProxy(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", g.ControlPlane.ProxySocket())
	if err != nil {
		return fmt.Errorf("start the API server's proxy: %w", err)
	}
	g.proxy = &http.Server{Handler: tunnels(g.dial)} //nolint:gosec // its only client is the API server
	go func() { _ = g.proxy.Serve(listener) }()
	return nil
}

// dial connects to a pod from the machine, and to all else from here.
func (g *Guest) dial(ctx context.Context, address string) (net.Conn, error) {
	if to, err := netip.ParseAddrPort(address); err == nil && pods.Contains(to.Addr()) {
		if g.Machine == nil {
			return nil, errors.New("the machine hasn't booted yet")
		}
		return g.Machine.Dial(ctx, "tcp", address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// tunnels answers CONNECT requests with a connection that is dialed to their address.
func tunnels(dial func(ctx context.Context, address string) (net.Conn, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			http.Error(w, "want CONNECT", http.StatusMethodNotAllowed)
			return
		}
		server, err := dial(r.Context(), r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		client, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			_ = server.Close()
			return
		}
		if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
			join(client, buffered, server)
		}
		_, _ = client.Close(), server.Close()
	})
}

// join passes on what either side sends until one of them ends. What was read of the client already comes from a reader
// of its own.
func join(client io.Writer, fromClient io.Reader, server io.ReadWriter) {
	ended := make(chan struct{}, 2)
	pass := func(to io.Writer, from io.Reader) {
		_, _ = io.Copy(to, from)
		ended <- struct{}{}
	}
	go pass(server, fromClient)
	go pass(client, server)
	<-ended
}
