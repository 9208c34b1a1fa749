package daemon

import (
	"log/slog"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus/topic"
)

// supervisor is who started the daemon, as far as it wants to be told: systemd or kubelot up for a process, the roster
// for a member of a group.
type supervisor interface {
	// state is told of each change of health; the first one means that the daemon is ready.
	state(state topic.HealthState, message string)
	// alive is told now and then, while the daemon's loop comes round.
	alive()
	// stopping is told that the daemon was asked to stop.
	stopping()
}

// unit tells systemd of a process that is one daemon; without systemd it does nothing.
type unit struct {
	log   *slog.Logger
	ready bool
}

func (u *unit) state(state topic.HealthState, message string) {
	status := "STATUS=" + string(state)
	if message != "" {
		status += ": " + message
	}
	if !u.ready {
		u.ready = true
		status = systemd.SdNotifyReady + "\n" + status
	}
	notify(u.log, status)
}

func (u *unit) alive()    { notify(u.log, systemd.SdNotifyWatchdog) }
func (u *unit) stopping() { notify(u.log, systemd.SdNotifyStopping) }

func notify(log *slog.Logger, message string) {
	if _, err := systemd.SdNotify(false, message); err != nil {
		log.Warn("systemd can't be told the state", "error", err)
	}
}
