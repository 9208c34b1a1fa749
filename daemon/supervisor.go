package daemon

import (
	"log/slog"
	"strings"
	"unicode"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus/topic"
)

// supervisor is what started the daemon and wants to know how it is: systemd or kubelot up for a process, the roster
// for a member of a group.
type supervisor interface {
	// state is called for each change of health. The first call means that the daemon is ready, unless it has stopped.
	state(state topic.HealthState, message string)
	// alive is called at intervals while the daemon's loop answers.
	alive()
	// stopping is called when the daemon was asked to stop.
	stopping()
}

// unit reports to systemd for a process that is one daemon. Without systemd it does nothing.
type unit struct {
	log   *slog.Logger
	ready bool
}

func (u *unit) state(state topic.HealthState, message string) {
	status := "STATUS=" + string(state)
	if message != "" {
		status += ": " + oneLine(message)
	}
	if !u.ready && state != topic.Stopped {
		u.ready = true
		status = systemd.SdNotifyReady + "\n" + status
	}
	notify(u.log, status)
}

func (u *unit) alive()    { notify(u.log, systemd.SdNotifyWatchdog) }
func (u *unit) stopping() { notify(u.log, systemd.SdNotifyStopping) }

// oneLine is the text without control characters. Each line of a notification is a field of its own, and a message may
// have come from elsewhere, such as from the runtime.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// cut is the text up to the last whole character within so many bytes.
func cut(text string, limit int) string {
	return strings.ToValidUTF8(text[:min(len(text), limit)], "")
}

func notify(log *slog.Logger, message string) {
	if _, err := systemd.SdNotify(false, message); err != nil {
		log.Warn("can't notify systemd of the state", "error", err)
	}
}
