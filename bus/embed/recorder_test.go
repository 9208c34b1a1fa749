package embed

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"kubelot.dev/bus/bussuite"
	"kubelot.dev/bus/internal/layout"
)

// The server cuts off the bus's own connection as any other that is slow, or was frozen while it was written to. It
// comes back: the history goes on, and values are replaced.
func TestTheBussOwnConnectionComesBack(t *testing.T) {
	b := startBus(t)
	w := bussuite.Things.Writer(conn(t, b, "writer"))
	say := func(n int) {
		t.Helper()
		if err := w.Set("k", bussuite.Thing{N: n}); err != nil {
			t.Fatal(err)
		}
		flush(t, w)
	}
	recorded := func() uint64 { return b.subjects(t, layout.StreamHistory)["history.suite.thing.k"] }
	say(0)
	for recorded() == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	for round := range 3 {
		b.cutOff(t)
		before := recorded()
		for n, end := 0, time.Now().Add(time.Minute); recorded() == before; n++ {
			if time.Now().After(end) {
				t.Fatalf("round %d: the history has stopped", round)
			}
			say(1000*(round+1) + n)
			time.Sleep(20 * time.Millisecond)
		}
	}
	own, err := b.server.admin.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	m := nats.NewMsg(layout.ReplacePrefix + "suite.thing.k")
	m.Data = []byte(`{"n":2}`)
	m.Header.Set(layout.ReplaceBy, strconv.FormatInt(time.Now().Add(time.Minute).UnixMilli(), 10))
	if answer, err := own.RequestMsg(m, time.Minute); err != nil || strings.Contains(string(answer.Data), `"error"`) {
		t.Errorf("a value isn't replaced any more: %v, %v", answer, err)
	}
}

// A machine that stands still for two seconds in the middle of a handshake costs the bus one try.
func TestTheBussOwnConnectionIsTriedAgain(t *testing.T) {
	b := startBus(t)
	tries := 0
	nc, err := b.server.admin.connect(func(o *nats.Options) error {
		if tries++; tries < 3 {
			o.Timeout = time.Nanosecond
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if tries != 3 {
		t.Errorf("it was tried %d times, want 3", tries)
	}
}

// cutOff has the server close the bus's own connections.
func (b *liveBus) cutOff(t *testing.T) {
	t.Helper()
	ns, found := b.server.admin.server, 0
	conns, err := ns.Connz(&server.ConnzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range conns.Conns {
		if c.Name == "kubelot-bus" {
			found++
			_ = ns.DisconnectClientByID(c.Cid) // another of them may have ended meanwhile
		}
	}
	if found == 0 {
		t.Fatal("the bus has no connection of its own")
	}
}

// A question whose answer is lost with the connection is asked again.
func TestAQuestionEndsWithItsConnection(t *testing.T) {
	silent, err := server.NewServer(&server.Options{DontListen: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	silent.Start()
	defer silent.WaitForShutdown()
	defer silent.Shutdown()
	if !silent.ReadyForConnections(time.Minute) {
		t.Fatal("the server doesn't start")
	}
	hears, err := nats.Connect("", nats.InProcessServer(silent))
	if err != nil {
		t.Fatal(err)
	}
	defer hears.Close()
	asked := make(chan struct{}, 1)
	if _, err := hears.Subscribe("$JS.API.INFO", func(*nats.Msg) { asked <- struct{}{} }); err != nil {
		t.Fatal(err)
	}
	if err := hears.Flush(); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect("", nats.InProcessServer(silent), heals)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan bool)
	for range 2 {
		go func() { answered <- asker(nc)(ctx) }()
		receive(t, asked)
		id, err := nc.GetClientID()
		if err != nil {
			t.Fatal(err)
		}
		if err := silent.DisconnectClientByID(id); err != nil {
			t.Fatal(err)
		}
		if receive(t, answered) {
			t.Error("a question that nobody answers counts as answered")
		}
		if ctx.Err() != nil {
			t.Fatal("the question outlives its connection")
		}
	}
}
