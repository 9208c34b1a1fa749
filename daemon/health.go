package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
)

const (
	// startGrace is how long a daemon that has just started may wait for others, or for what they make, without a
	// warning.
	startGrace = 10 * time.Second
	// maxMessage is how long the reason may be, in bytes: the bus keeps little of each daemon's own.
	maxMessage = 2 << 10
)

// health publishes health.<daemon> on change and each topic.BeatEvery, and reports the same to the supervisor.
type health struct {
	daemon string
	writer *bus.Writer[topic.DaemonHealth]
	pulse  *Pulse
	above  supervisor
	log    *slog.Logger

	mu  sync.Mutex
	now topic.DaemonHealth
	// said is what the daemon itself says. It becomes now, unless something on the bus or the changed configuration can't
	// be read.
	said    saying
	unread  []string
	refused string
	// unwarned is true while the daemon is not well and its log says so at the level of information only.
	unwarned bool
}

// saying is a state with its reason.
type saying struct {
	state   topic.HealthState
	message string
}

func newHealth(conn *bus.Conn, pulse *Pulse, above supervisor, log *slog.Logger) *health {
	h := &health{pulse: pulse, above: above, log: log}
	h.now = topic.DaemonHealth{Version: Version(), PID: os.Getpid(), Started: time.Now()}
	if conn != nil {
		h.daemon = conn.Daemon()
		h.writer = topic.Health.Writer(conn)
		conn.OnUnreadable(h.unreadable)
	}
	return h
}

// Set states the daemon's health.
func (h *health) Set(state topic.HealthState, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = saying{state, message}
	h.stateLocked()
}

// unreadable makes a daemon that is well degraded while it can't read something on the bus.
func (h *health) unreadable(texts []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unread = texts
	if h.said.state != "" {
		h.stateLocked()
	}
}

// refuse makes a daemon that is well degraded while it runs with another configuration than it should, because that
// can't be taken; nil ends that.
func (h *health) refuse(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = ""
	if err != nil {
		h.refused = "the changed configuration is not taken: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	if h.said.state != "" {
		h.stateLocked()
	}
}

// stateLocked states what the daemon says, and what it can't read.
func (h *health) stateLocked() {
	state, message := h.said.state, h.said.message
	troubles := slices.Clone(h.unread)
	if h.refused != "" {
		troubles = append(troubles, h.refused)
	}
	if len(troubles) > 0 && (state == topic.Healthy || state == topic.Degraded) {
		state = topic.Degraded
		if message != "" {
			troubles = append(troubles, message)
		}
		message = strings.Join(troubles, "; ")
	}
	message = cut(message, maxMessage)
	if h.now.State == state && h.now.Message == message {
		return
	}
	h.logChange(state, message)
	if h.now.State != state {
		h.now.Since = time.Now()
	}
	h.now.State, h.now.Message = state, message
	h.publishLocked()
	h.above.state(state, message)
}

func (h *health) logChange(state topic.HealthState, message string) {
	h.unwarned = false
	switch {
	case state == topic.Degraded && time.Since(h.now.Started) < startGrace:
		h.unwarned = true
		h.log.Info("health changed", "state", state, "reason", message)
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
		h.log.Error("can't publish the health", "error", err)
	}
}

// run beats until ctx ends, as long as the daemon's loop comes round.
func (h *health) run(ctx context.Context) {
	every := topic.BeatEvery
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
			h.log.Error("the daemon's loop hangs; the node isn't Ready without it, and systemd's watchdog restarts it",
				"for_at_least", patience)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unwarned {
		h.unwarned = false
		h.log.Warn("the daemon has been unhealthy since its start", "state", h.now.State, "reason", h.now.Message)
	}
	if h.now.State != "" {
		h.publishLocked()
	}
	h.above.alive()
}

// sleep states that the daemon sleeps, and is well: nothing needs it.
func (h *health) sleep(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Asleep = true
	h.said.message = "asleep: " + why
	h.stateLocked()
}

// awake takes sleep back.
func (h *health) awake() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now.Asleep = false
	h.said.message = ""
	h.stateLocked()
}

// finish states how the daemon ended.
func (h *health) finish(err error) {
	message := ""
	if err != nil && !errors.Is(err, context.Canceled) {
		message = err.Error()
	}
	h.Set(topic.Stopped, message)
}
