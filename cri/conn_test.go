package cri

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// pair is a quickConn and its peer.
func pair(t *testing.T) (quick *quickConn, peer *net.UnixConn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := dialUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if peer, err = listener.AcceptUnix(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = peer.Close()
	})
	quick, ok := conn.(*quickConn)
	if !ok {
		t.Fatalf("a connection to a unix socket is a %T", conn)
	}
	return quick, peer
}

// More than the socket's buffer takes goes through in both directions, as it was.
func TestQuickConnCarriesAll(t *testing.T) {
	quick, peer := pair(t)
	sent := make([]byte, 4<<20)
	if _, err := rand.Read(sent); err != nil {
		t.Fatal(err)
	}
	for name, ends := range map[string][2]net.Conn{"written": {quick, peer}, "read": {peer, quick}} {
		failed := make(chan error, 1)
		go func() {
			_, err := ends[0].Write(sent)
			failed <- err
		}()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(ends[1], got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := <-failed; err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: error %v, the same bytes: %t", name, err, bytes.Equal(got, sent))
		}
	}
}

func TestQuickConnEnds(t *testing.T) {
	t.Run("the peer has closed", func(t *testing.T) {
		quick, peer := pair(t)
		_ = peer.Close()
		if n, err := quick.Read(make([]byte, 8)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("Read = %d, %v, want EOF", n, err)
		}
		if _, _, err := quick.ReadOnReady(8, &pool{}); !errors.Is(err, io.EOF) {
			t.Errorf("ReadOnReady = %v, want EOF", err)
		}
		if n, err := quick.Write([]byte("x")); n != 0 || err == nil {
			t.Errorf("Write = %d, %v, want an error", n, err)
		}
	})
	t.Run("closed while a read waits", func(t *testing.T) {
		quick, _ := pair(t)
		time.AfterFunc(20*time.Millisecond, func() { _ = quick.Close() })
		if _, err := quick.Read(make([]byte, 8)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Read = %v, want that the connection is closed", err)
		}
		if _, err := quick.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Write = %v, want that the connection is closed", err)
		}
	})
	t.Run("deadlines", func(t *testing.T) {
		quick, _ := pair(t)
		soon := func() {
			if err := quick.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
		}
		soon()
		if _, err := quick.Read(make([]byte, 8)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read = %v, want that it took too long", err)
		}
		n, err := 0, error(nil)
		for try := 0; n == 0 && try < 10; try++ { // the machine may stand still before the write
			soon()
			n, err = quick.Write(make([]byte, 4<<20))
		}
		if n == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Write to a peer that doesn't read = %d, %v, want a part and that it took too long", n, err)
		}
	})
}

// pool counts the buffers that are out.
type pool struct{ out atomic.Int64 }

func (p *pool) Get(size int) *[]byte {
	p.out.Add(1)
	buffer := make([]byte, size)
	return &buffer
}

func (p *pool) Put(*[]byte) { p.out.Add(-1) }

// A connection that is silent holds no buffer: each daemon has one, and most are silent nearly always.
func TestQuickConnHoldsNoBufferWhileSilent(t *testing.T) {
	quick, peer := pair(t)
	var p pool
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		buffer, n, err := quick.ReadOnReady(1<<10, &p)
		if err != nil {
			answers <- answer{err: err}
			return
		}
		text := string((*buffer)[:n])
		p.Put(buffer)
		answers <- answer{text, nil}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if out := p.out.Load(); out != 0 {
		t.Errorf("%d buffers are held while nothing comes", out)
	}
	if _, err := peer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.err != nil || got.text != "hello" {
		t.Errorf("read %q, %v", got.text, got.err)
	}
	_ = quick.Close()
	if _, _, err := quick.ReadOnReady(1<<10, &p); !errors.Is(err, net.ErrClosed) || p.out.Load() != 0 {
		t.Errorf("after the end: %v, %d buffers held", err, p.out.Load())
	}
}

// Each probe's run reads and writes several times.
func TestQuickConnAllocatesNothing(t *testing.T) {
	quick, peer := pair(t)
	buffer := make([]byte, 64)
	allocated := testing.AllocsPerRun(200, func() {
		if _, err := quick.Write(buffer[:8]); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Read(buffer); err != nil {
			t.Fatal(err)
		}
		if _, err := peer.Write(buffer[:8]); err != nil {
			t.Fatal(err)
		}
		if _, err := quick.Read(buffer); err != nil {
			t.Fatal(err)
		}
	})
	if allocated != 0 {
		t.Errorf("a write and a read allocate %v objects", allocated)
	}
}
