package embed

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func buffered() (*bufferedConn, net.Conn) {
	ours, theirs := net.Pipe()
	c := &bufferedConn{Conn: ours, ended: make(chan struct{})}
	c.changed.L = &c.mu
	go c.pump()
	return c, theirs
}

func write(t *testing.T, c net.Conn, data []byte) {
	t.Helper()
	if n, err := c.Write(data); n != len(data) || err != nil {
		t.Fatalf("wrote %d of %d: %v", n, len(data), err)
	}
}

func TestInProcessWritesDoNotWaitForTheReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := buffered()
		begin := time.Now()
		for range 16 {
			write(t, c, bytes.Repeat([]byte("x"), inFlight/16))
		}
		if time.Since(begin) != 0 {
			t.Error("writing took time")
		}
		got := make(chan int)
		go func() {
			time.Sleep(100 * time.Millisecond)
			data, _ := io.ReadAll(server)
			got <- len(data)
		}()
		write(t, c, bytes.Repeat([]byte("x"), inFlight)) // waits for the reader
		if waited := time.Since(begin); waited != 100*time.Millisecond {
			t.Errorf("too much was on its way, and the next write waited %v", waited)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if n := <-got; n != 2*inFlight {
			t.Errorf("the server got %d bytes, want %d", n, 2*inFlight)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("a closed connection takes messages")
		}
	})
}

func TestInProcessCloseDoesNotWaitLongForAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := buffered()
		defer server.Close()
		write(t, c, []byte("x"))
		begin := time.Now()
		_ = c.Close()
		if took := time.Since(begin); took != drainTime {
			t.Errorf("closing took %v", took)
		}
	})
}

func TestInProcessWritesFailWhenTheServerHangsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, server := buffered()
		server.Close()
		write(t, c, []byte("on its way"))
		synctest.Wait()
		if _, err := c.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("error %v", err)
		}
		_ = c.Close()
	})
}
