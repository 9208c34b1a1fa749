package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// beatEvery is how often a daemon says that it lives.
	beatEvery = 30 * time.Second
	// maxMessage is how long the reason may be, in bytes: the bus keeps little of each daemon's own.
	maxMessage = 2 << 10
)

// health publishes health.<daemon> on change and every 30 s, and tells systemd the same.
type health struct {
	daemon string
	writer *bus.Writer[topic.DaemonHealth]
	pulse  *Pulse
	log    *slog.Logger

	mu    sync.Mutex
	now   topic.DaemonHealth
	ready bool
}

func newHealth(conn *bus.Conn, pulse *Pulse, log *slog.Logger) *health {
	h := &health{pulse: pulse, log: log}
	h.now = topic.DaemonHealth{Version: Version(), PID: os.Getpid(), Started: time.Now()}
	if conn != nil {
		h.daemon = conn.Daemon()
		h.writer = topic.Health.Writer(conn)
	}
	return h
}

// Set states the daemon's health.
func (h *health) Set(state topic.HealthState, message string) {
	message = message[:min(len(message), maxMessage)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.State == state && h.now.Message == message {
		return
	}
	h.logChange(state, message)
	if h.now.State != state {
		h.now.Since = time.Now()
	}
	h.now.State, h.now.Message = state, message
	h.publishLocked()
	status := "STATUS=" + string(state)
	if message != "" {
		status += ": " + message
	}
	if !h.ready {
		h.ready = true
		status = systemd.SdNotifyReady + "\n" + status
	}
	h.notify(status)
}

func (h *health) logChange(state topic.HealthState, message string) {
	switch {
	case state == topic.Degraded || state == topic.Unhealthy:
		h.log.Warn("health changed", "state", state, "reason", message)
	case h.now.State != "" && h.now.State != state && state == topic.Healthy:
		h.log.Info("health changed", "state", state)
	}
}

func (h *health) publishLocked() {
	h.now.Beat = time.Now()
	if h.writer == nil {
		return
	}
	if err := h.writer.Set(h.daemon, h.now); err != nil {
		h.log.Error("health can't be published", "error", err)
	}
}

// run beats until ctx ends, as long as the daemon's loop comes round.
func (h *health) run(ctx context.Context) {
	every := beatEvery
	if watchdog, err := systemd.SdWatchdogEnabled(false); err == nil && watchdog > 0 {
		every = min(every, watchdog/2)
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			h.beat(ctx)
		}
	}
}

func (h *health) beat(ctx context.Context) {
	if !h.pulse.beats(ctx) {
		if ctx.Err() == nil {
			h.log.Error("the daemon's loop hangs; the node isn't Ready without it, and systemd's watchdog restarts it", "for_at_least", patience)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now.State != "" {
		h.publishLocked()
	}
	h.notify(systemd.SdNotifyWatchdog)
}

// stopping tells systemd that the daemon was asked to stop.
func (h *health) stopping() { h.notify(systemd.SdNotifyStopping) }

// finish states how the daemon ended.
func (h *health) finish(err error) {
	message := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		message = err.Error()
	}
	h.Set(topic.Stopped, message)
}

// notify tells systemd; without systemd it does nothing.
func (h *health) notify(state string) {
	if _, err := systemd.SdNotify(false, state); err != nil {
		h.log.Warn("systemd can't be told the state", "error", err)
	}
}
