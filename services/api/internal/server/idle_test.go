package server

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A stream ends after the idle time also if it is read and written through the buffer that comes with its connection,
// and somebody else sets a later deadline, as WebSockets do.
func TestBufferedStreamsEndWhenIdle(t *testing.T) {
	const idle = time.Hour
	type end struct {
		data    string
		silence time.Duration
		err     error
	}
	for name, write := range map[string]bool{"read": false, "written": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan end, 1)
				client := dialed(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					stream, buffer, err := (&idleWriter{w, idle}).Hijack()
					if err != nil {
						t.Error(err)
						return
					}
					defer stream.Close()
					if buffer.Reader.Buffered() != len("with") {
						t.Errorf("%d bytes came with the request", buffer.Reader.Buffered())
					}
					last := time.Now()
					later := func() error { return stream.SetDeadline(time.Now().Add(4 * idle)) }
					data := make([]byte, 8)
					for n := 0; n < len(data) && err == nil; last = time.Now() {
						var more int
						more, err = buffer.Read(data[n:])
						n += more
						_ = later()
					}
					for err == nil {
						if write {
							_, err = buffer.WriteString("answer")
							err = errors.Join(err, buffer.Flush())
						} else {
							_, err = buffer.ReadByte()
						}
					}
					ended <- end{string(data), time.Since(last), err}
				}))
				// A part comes with the request.
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\nHost: n1\r\n\r\nwith"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(idle / 2)
				if _, err := io.WriteString(client, "more"); err != nil {
					t.Fatal(err)
				}
				got := <-ended
				if got.data != "withmore" || got.silence != idle {
					t.Errorf("the stream had %q and ended %v after the last of it: %v", got.data, got.silence, got.err)
				}
			})
		})
	}
}
