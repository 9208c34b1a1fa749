package embed

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"kubelot.dev/bus/internal/layout"
)

const (
	// recorderMessages and recorderBytes are how far the recorder may be behind, for each topic; beyond that the history
	// has gaps.
	recorderMessages = 4096
	recorderBytes    = 4 << 20
)

// record copies every message of the states into the history, until the connection that it returns is closed. When that
// is lost, it is made again, and the history has a gap. STATE keeps only the last value of a key. A mirror stream would
// miss values that are replaced quickly, and the server's own republishing would also copy the tombstones' time to
// live.
func record(own *admin, crew Crew, log *slog.Logger) (*nats.Conn, error) {
	nc, err := own.connect(heals, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		log.Debug("the history of the states has a gap", "error", err)
	}), nats.ReconnectHandler(func(*nats.Conn) {
		log.Warn("the bus's own connection was lost and made again; the history of the states has a gap")
	}))
	if err != nil {
		return nil, err
	}
	for _, filter := range crew.State {
		sub, err := nc.Subscribe(filter, func(m *nats.Msg) { recordOne(nc, m) })
		if err == nil {
			err = sub.SetPendingLimits(recorderMessages, recorderBytes)
		}
		if err != nil {
			nc.Close()
			return nil, fmt.Errorf("record the history of %s: %w", filter, err)
		}
	}
	if err := nc.Flush(); err != nil {
		nc.Close()
		return nil, fmt.Errorf("record the history: %w", err)
	}
	return nc, nil
}

func recordOne(nc *nats.Conn, m *nats.Msg) {
	c := nats.NewMsg(layout.HistoryPrefix + m.Subject)
	c.Data = m.Data
	for name, values := range m.Header {
		if !strings.HasPrefix(name, layout.NATSPrefix) {
			c.Header[name] = values
		}
	}
	_ = nc.PublishMsg(c) // fails while the connection is away, or too slow; then the history has a gap
}
