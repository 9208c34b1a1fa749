package live

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/health"
)

// Crew are the daemons of a node, in the order in which they are shown: a pod's way, then the rest.
func Crew() []string {
	return []string{"bus", "podsync", "pleg", "volume", "resource", "probe", "status", "lease", "gc", "stats", "api"}
}

// order compares daemons by their place in the crew. Strangers come last, by name.
func order(a, b string) int {
	place := func(name string) int {
		if i := slices.Index(Crew(), name); i >= 0 {
			return i
		}
		return len(Crew())
	}
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}

const (
	// lagWindow is how long a lag is shown.
	lagWindow = time.Minute
	// maxLags bounds how many are kept of one daemon.
	maxLags = 1000
)

// daemonLog is what is remembered of one daemon besides its health.
type daemonLog struct {
	// started is when its last process was started by the messages, restarts how many followed the first one that was
	// seen. retained is started by the reading of what is retained.
	started, retained time.Time
	asleep            bool
	restarts          int
	reading           *Process
	cpu               float64
	lags              []lag
}

// lag is how long a message took to the bus.
type lag struct {
	at   time.Time
	took time.Duration
}

func (m *Model) daemon(name string) *daemonLog {
	if m.daemons[name] == nil {
		m.daemons[name] = &daemonLog{cpu: -1}
	}
	return m.daemons[name]
}

// process learns from a reading. A rate needs two of the same process.
func (d *daemonLog) process(now Process) {
	before := d.reading
	if before != nil && before.PID == now.PID && now.At.After(before.At) && now.CPU >= before.CPU {
		d.cpu = (now.CPU - before.CPU).Seconds() / now.At.Sub(before.At).Seconds()
	} else if before == nil || before.PID != now.PID {
		d.cpu = -1
	}
	d.reading = &now
}

// forgetProcesses forgets the readings of daemons that have no process any more.
func (m *Model) forgetProcesses(readings map[string]Process) {
	for name, d := range m.daemons {
		if _, runs := readings[name]; !runs {
			d.reading, d.cpu = nil, -1
		}
	}
}

// read learns from what is retained of the daemon's health.
func (d *daemonLog) read(h topic.DaemonHealth) { d.retained, d.asleep = h.Started, h.Asleep }

// note learns from a message of the daemon.
func (d *daemonLog) note(e entry) {
	if h, ok := e.value.(topic.DaemonHealth); ok {
		before := d.started
		if before.IsZero() {
			before = d.retained
		}
		// A daemon that wakes starts again in the same process: that is no restart.
		if !before.IsZero() && h.Started.After(before) && !d.asleep {
			d.restarts++
		}
		if h.Started.After(d.started) {
			d.started = h.Started
		}
		d.asleep = h.Asleep
	}
	if said := saidAt(e.value); !said.IsZero() {
		d.lags = appendBounded(d.lags, lag{e.Time, max(0, e.Time.Sub(said))}, maxLags)
	}
}

// saidAt is when the daemon made the message; zero where the message doesn't tell. The begin of a step is made known
// later on purpose.
func saidAt(value any) time.Time {
	switch v := value.(type) {
	case topic.DaemonHealth:
		return v.Beat
	case topic.Step:
		if v.Phase == topic.StepEnd {
			return v.At
		}
	case topic.Event:
		return v.At
	case topic.Decision:
		return v.At
	}
	return time.Time{}
}

// lag is the longest of late; -1 for none.
func (d *daemonLog) lag(now time.Time) time.Duration {
	longest := time.Duration(-1)
	for _, l := range d.lags {
		if now.Sub(l.at) <= lagWindow {
			longest = max(longest, l.took)
		}
	}
	return longest
}

// daemonsAt are the crew and whoever else has said something of itself.
func (m *Model) daemonsAt(now time.Time) []Daemon {
	names := Crew()
	for name := range m.snapshot.Healths {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, order)
	daemons := make([]Daemon, 0, len(names))
	for _, name := range names {
		daemons = append(daemons, m.daemonAt(name, now))
	}
	return daemons
}

func (m *Model) daemonAt(name string, now time.Time) Daemon {
	h, known := m.snapshot.Healths[name]
	l := m.daemon(name)
	d := Daemon{
		Name: name, State: h.State, Problem: "has not reported its health", Version: h.Version, PID: h.PID,
		Started: h.Started, Since: h.Since, Beat: h.Beat, Restarts: l.restarts, CPU: l.cpu, Lag: l.lag(now),
		Rate: m.counts.rateOf(name, now),
	}
	if known {
		d.Problem = health.Problem(h, now)
	}
	if !known && name == "bus" {
		d.State, d.Problem = m.busAt()
	} else if !m.synced && !known {
		d.Problem = ""
	}
	if r := l.reading; r != nil {
		d.PID = cmp.Or(d.PID, r.PID)
		d.MemoryBytes, d.Shares, d.Restarts = r.MemoryBytes, slices.Clone(r.Shares), max(d.Restarts, r.Restarts)
	}
	switch {
	case h.Asleep:
		d.Doing = "asleep until something needs it"
	case d.State != topic.Stopped:
		d.Doing = m.doing(name, now)
	}
	return d
}

// busAt is how the bus stands, which reports no health: it is well as long as it answers.
func (m *Model) busAt() (topic.HealthState, string) {
	switch {
	case m.link.Up:
		return topic.Healthy, ""
	case m.link.Problem != "":
		return topic.Unhealthy, m.link.Problem
	}
	return "", ""
}
