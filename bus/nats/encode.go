package nats

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"kubelot.dev/bus"
	"kubelot.dev/bus/internal/layout"
)

const (
	// tombstoneMin is how long the bus keeps a tombstone at least, for readers that are behind. Readers that were away
	// need none: what they knew and don't find again is gone.
	tombstoneMin = 30 * time.Second
	// tombstoneSpread is added at random, so that the tombstones of many pods that went at once don't expire at once.
	tombstoneSpread = 10 * time.Second
	// tooFarBehind is when a reader may soon miss tombstones and has to begin again with what is retained.
	tooFarBehind = tombstoneMin / 2
)

// encode is the NATS form of m.
func encode(m bus.Message) *natsgo.Msg {
	out := &natsgo.Msg{Subject: m.Subject, Data: m.Data}
	if len(m.Header) > 0 {
		out.Header = make(natsgo.Header, len(m.Header)+1)
		for name, value := range m.Header {
			out.Header[name] = []string{value}
		}
	}
	if m.Tombstone() {
		age := tombstoneMin + rand.N(tombstoneSpread)
		out.Header[layout.NATSTTL] = []string{strconv.Itoa(int(age.Seconds()))}
	}
	return out
}

// decode is the inverse of encode.
func decode(m *natsgo.Msg, at time.Time) bus.Message {
	out := bus.Message{Subject: m.Subject, Data: m.Data, Time: at}
	if len(m.Header) > 0 {
		out.Header = make(map[string]string, len(m.Header))
		for name, values := range m.Header {
			if len(values) > 0 && !strings.HasPrefix(name, layout.NATSPrefix) {
				out.Header[name] = values[0]
			}
		}
	}
	return out
}
