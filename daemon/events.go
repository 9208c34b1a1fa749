package daemon

import (
	"log/slog"
	"time"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

// events publishes Kubernetes Events as event.<daemon>.
type events struct {
	daemon    string
	publisher *bus.Publisher[topic.Event]
	log       *slog.Logger
}

func newEvents(conn *bus.Conn, log *slog.Logger) *events {
	e := &events{log: log}
	if conn != nil {
		e.daemon = conn.Daemon()
		e.publisher = topic.KubeEvent.Publisher(conn)
	}
	return e
}

// Record publishes one event; without a time it gets the present one.
func (e *events) Record(event topic.Event) {
	if event.At.IsZero() {
		event.At = time.Now()
	}
	e.log.Debug("event", "kind", event.Kind, "namespace", event.Namespace, "pod", event.Name, "type", event.Type,
		"reason", event.Reason, "text", event.Message)
	if e.publisher == nil {
		return
	}
	if err := e.publisher.Publish(e.daemon, event); err != nil {
		e.log.Error("can't publish an event", "reason", event.Reason, "error", err)
	}
}
