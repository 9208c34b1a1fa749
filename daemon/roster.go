package daemon

import (
	"cmp"
	"strings"
	"sync"

	systemd "github.com/coreos/go-systemd/v22/daemon"

	"kubelot.dev/bus/topic"
)

// roster puts together what the members of a group say of themselves, for the supervisor of their process.
type roster struct {
	notify func(message string)

	mu      sync.Mutex
	members []*seat
	ready   bool
	status  string
}

// seat is one member's place in the roster; it is the member's supervisor.
type seat struct {
	roster *roster
	name   string
	// began is closed once the member was ready for the first time.
	began chan struct{}

	// Below: the roster's lock.
	ready   bool
	running bool
	beaten  bool // since the supervisor was last told that all is well
	now     topic.HealthState
	message string
}

func newRoster(notify func(message string), names []string) *roster {
	r := &roster{notify: notify}
	for _, name := range names {
		r.members = append(r.members, &seat{roster: r, name: name, began: make(chan struct{})})
	}
	return r
}

// enter begins a life of the member. Its start counts as a beat: a member that fails again and again doesn't hang.
func (s *seat) enter() {
	s.roster.mu.Lock()
	defer s.roster.mu.Unlock()
	s.running, s.beaten = true, true
}

// leave ends a life of the member. Until the next one nobody waits for its beats.
func (s *seat) leave() {
	s.roster.mu.Lock()
	defer s.roster.mu.Unlock()
	s.running = false
	s.roster.feedLocked()
}

func (s *seat) state(state topic.HealthState, message string) {
	r := s.roster
	r.mu.Lock()
	defer r.mu.Unlock()
	s.now, s.message = state, message
	if !s.ready && state != topic.Stopped {
		s.ready = true
		close(s.began)
	}
	status := r.summaryLocked()
	if !r.ready && r.allLocked(func(s *seat) bool { return s.ready }) {
		r.ready, r.status = true, status
		r.notify(systemd.SdNotifyReady + "\n" + status)
		return
	}
	if status != r.status {
		r.status = status
		r.notify(status)
	}
}

func (s *seat) alive() {
	s.roster.mu.Lock()
	defer s.roster.mu.Unlock()
	s.beaten = true
	s.roster.feedLocked()
}

// stopping does nothing, because the supervisor is only told when the group stops.
func (s *seat) stopping() {}

// feedLocked feeds the watchdog once each member that runs has beaten again.
func (r *roster) feedLocked() {
	some := !r.allLocked(func(s *seat) bool { return !s.running })
	if some && r.allLocked(func(s *seat) bool { return s.beaten || !s.running }) {
		for _, s := range r.members {
			s.beaten = false
		}
		r.notify(systemd.SdNotifyWatchdog)
	}
}

func (r *roster) allLocked(is func(*seat) bool) bool {
	for _, s := range r.members {
		if !is(s) {
			return false
		}
	}
	return true
}

// maxStatus is how long the status of a group may be, in bytes. systemd ignores a notification of more than 4 KiB as a
// whole, with the READY=1 that is in it.
const maxStatus = 3 << 10

// summaryLocked is the status line: who isn't healthy and why. Where the reasons are long, each has an equal part.
func (r *roster) summaryLocked() string {
	var parts []string
	for _, s := range r.members {
		if s.now == topic.Healthy {
			continue
		}
		text := s.name + " " + cmp.Or(string(s.now), "starting")
		if s.message != "" {
			text += ": " + oneLine(s.message)
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return "STATUS=healthy"
	}
	for i, text := range parts {
		parts[i] = cut(text, maxStatus/len(parts))
	}
	return "STATUS=" + strings.Join(parts, "; ")
}
