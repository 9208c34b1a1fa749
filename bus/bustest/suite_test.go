package bustest

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bussuite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSuite(t *testing.T) {
	bussuite.Run(t, func(*testing.T) bussuite.Bus {
		b := New()
		b.Restrict(bussuite.Contracts()...)
		return memory{b}
	})
}

// memory is the twin under test.
type memory struct{ *Bus }

func (m memory) Dial(t *testing.T, daemon string, log *slog.Logger) bus.Transport {
	transport := m.Transport(daemon, log)
	t.Cleanup(transport.Close)
	return transport
}

func (m memory) DialWrongKey(t *testing.T, log *slog.Logger) bus.Transport {
	stranger := m.Transport("writer", log).(*transport)
	stranger.stranger = true
	log.Warn("can't connect to the bus: it doesn't know the key")
	t.Cleanup(stranger.Close)
	return stranger
}

func (m memory) Stop(*testing.T) { m.Disconnect() }

func (m memory) Start(_ *testing.T, keepStore bool) {
	if keepStore {
		m.Reconnect()
		return
	}
	m.LoseState()
}

// Inside a bubble the bus comes to rest by itself, so that tests need neither sleeps nor polling.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New()
		writer, reader := b.Conn("writer"), b.Conn("reader")
		defer writer.Close()
		defer reader.Close()
		w := bussuite.Things.Writer(writer)
		changes, err := bussuite.Things.Watch(t.Context(), reader)
		if err != nil {
			t.Fatal(err)
		}
		var got []bus.Change[bussuite.Thing]
		go func() {
			for c := range changes {
				got = append(got, c)
			}
		}()
		if err := w.Set("a", bussuite.Thing{N: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		b.LoseState()
		synctest.Wait()
		if err := w.Delete("a"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		last := got[len(got)-1]
		if last.Key != "a" || !last.Deleted {
			t.Fatalf("got %+v last, want a removed", last)
		}
		if kept := b.Retained(); len(kept) != 0 {
			t.Fatalf("the bus keeps %v, want nothing", kept)
		}
	})
}
