package crowd

import (
	"context"
	"net/http"
	"sync"
)

// visit is a request on its way from Outside to Inside.
type visit struct {
	conn *Conn
	// leave ends its turn among the requests of strangers, decided its time as a pending request.
	leave, decided func()
}

type visitKey struct{}

// Outside wraps the handlers that decide whether a request is allowed. It makes requests of strangers wait for their
// turn.
func (c *Crowd) Outside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := r.Context().Value(connKey{}).(*Conn)
		v := &visit{conn: conn, leave: func() {}, decided: sync.OnceFunc(func() { c.pend(conn, -1) })}
		c.pend(conn, 1)
		defer v.decided()
		if conn.isStranger() {
			if !conn.home.requests.take(r.Context().Done()) {
				refuse(w, "the node's API has too many requests")
				return
			}
			v.leave = sync.OnceFunc(conn.home.requests.give)
			defer v.leave()
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
		v.leave()
		send(w, r)
	})
}

// pend counts pending requests.
func (c *Crowd) pend(conn *Conn, more int) {
	c.mu.Lock()
	conn.pending += more
	c.pending += more
	many := c.pending > c.limits.Pending
	c.mu.Unlock()
	if many && more > 0 {
		c.bound(c.limits.Pending, (*Conn).pendingLocked, "there are too many requests neither allowed nor refused yet")
	}
}

// send waits until the client has taken the answer. Over HTTP/2 it can refuse to, and the server keeps what it needs
// for each of them. Over HTTP/1 there is only one for a connection.
func send(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor > 1 {
		_ = http.NewResponseController(w).Flush() // a client that went away is nobody to tell
	}
}

// Inside wraps the handlers that only allowed requests reach. It makes the connection a guest. While too many requests
// are handled, it makes the request wait, or refuses it if it is one that lasts.
func (c *Crowd) Inside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := r.Context().Value(visitKey{}).(*visit)
		v.leave()
		if !c.welcome(v.conn) {
			w.Header().Set("Connection", "close")
			refuse(w, "the node's API has too many connections")
			return
		}
		end, ok := c.begin(v.conn, r)
		if !ok {
			refuse(w, "the node's API has too many requests and streams")
			return
		}
		defer end()
		v.decided()
		next.ServeHTTP(w, r)
		send(w, r)
	})
}

// begin reports whether the request may be handled, until end.
func (c *Crowd) begin(conn *Conn, r *http.Request) (end func(), ok bool) {
	if !c.limits.Lasts(r) {
		return conn.home.pages.give, conn.home.pages.take(r.Context().Done())
	}
	select {
	case c.allowed <- struct{}{}:
		return func() { <-c.allowed }, true
	default:
		return nil, false
	}
}

func refuse(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}
