// Package daemon starts and stops any kubelot daemon, loads its configuration, reports its health and metrics, logs,
// and notifies systemd. A daemon's main calls Main and does nothing else.
//
// Log lines for a terminal are written by hand, because lmittmann/tint passes escape sequences in values, which may
// come from a pod, on to the terminal (docs/adr/0024).
//
// # Reads
//
// The command line, the kubelet's configuration file and drop-ins (package config), the daemon's bus key
// <run-dir>/keys/<daemon>.nk, systemd's environment (NOTIFY_SOCKET, WATCHDOG_USEC, and what package fdstore reads).
// Its own cgroup, if kubeletCgroups is set (package cgroupmove).
//
// # Writes
//
// The topics health.<daemon> and event.<daemon>, log lines on standard error, metrics on the unix
// socket <run-dir>/metrics/<daemon>.sock. The process's cgroup, if kubeletCgroups is set (package cgroupmove).
//
// # Owns
//
// The process: its signals, its exit code, its memory settings, its bus connection. A process may be several daemons
// (MainGroup, docs/adr/0016); no daemon knows whether it is alone.
//
// # Guarantees
//
//   - SIGTERM and SIGINT end the context that Run got, with the signal as its cause; a second one ends the process.
//   - SIGHUP, or a POST to ReloadPath, has a daemon read its configuration again. It takes what it can take while it
//     runs, and names what needs its restart. If the configuration is wrong nothing changes, and its health says so.
//   - A daemon starts and runs without the bus.
//   - What was given to the bus before Run returned is sent before the process ends, unless the bus is away.
//   - While the loop of a daemon hangs, its health on the bus and its systemd watchdog get no beats, if the daemon has
//     named the loop (Env.Pulse).
//   - The exit code is 0 only after a requested stop. The last log line says why the daemon ended.
//   - A daemon that says that nothing needs it sleeps, if it has a process to itself (package sleep).
//   - If a daemon of a group fails, it is started again alone. A panic is caught only if no goroutine of the daemon is
//     left. Otherwise the group ends.
package daemon

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"kubelot.dev/bus"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon/config"
	"kubelot.dev/daemon/fdstore"
	"kubelot.dev/daemon/sleep"
)

// Spec is what a daemon is made of.
type Spec struct {
	// Name is the daemon's name without the "kubelot-" prefix, such as "podsync".
	Name string
	// Doc says in one sentence what the daemon does; it is the help text.
	Doc string
	// Contract is what it does on the bus.
	Contract bus.Contract
	// Run does the daemon's work until ctx ends. When it returns, it has left no goroutine behind.
	Run func(ctx context.Context, env Env) error

	// Flags adds flags of the daemon's own; nil for none.
	Flags func(fs *pflag.FlagSet)
	// WithoutBus is for kubelot-bus itself. Env.Bus is nil, and systemd gets READY=1 when Run first sets its health,
	// because the others start after that.
	WithoutBus bool
	// LibraryMetrics is for a daemon that serves the registry in which Kubernetes' libraries count (component-base's
	// legacyregistry). The others drop what it holds.
	LibraryMetrics bool
	// Profiles is for a daemon that serves profiles of its process itself, if the configuration allows it.
	Profiles bool
	// Processors is how many processors the daemon uses at most where it has a process to itself; 0 means 2.
	Processors int
}

// Env is what the chassis gives to a daemon's Run.
type Env struct {
	// Config is the configuration at the daemon's start.
	Config *config.Config
	Bus    *bus.Conn
	Log    *slog.Logger
	// Metrics is where the daemon registers its metrics; they are served on a unix socket
	// under the run directory, from where kubelot-api gathers them.
	Metrics *prometheus.Registry
	// Pages are further paths of that socket, for what is too large for the bus; kubelot-api passes them on. Handlers may
	// be added at any time, before or after it is served.
	Pages  *http.ServeMux
	Health HealthReporter
	// Pulse is where a daemon names its loop, so that the beats of its health depend on the loop; nil in tests.
	Pulse *Pulse
	// Events publishes Kubernetes Events under the daemon's name.
	Events EventRecorder
	// Reloads is where the daemon says which settings it can take while it runs; nil in tests.
	Reloads *Reloads
	// Flags are the command line's flags with their values, also those that weren't given. None of them is secret.
	Flags map[string]string
	// Connections keeps connections open when this process is killed; nil where nobody supervises it.
	Connections *fdstore.Store
	// Sleep lets the daemon sleep while nothing needs it; nil where it has no process to itself.
	Sleep *sleep.Sleeper
	// InProcess is where kubelot-bus registers how daemons in its own process connect to it; nil if there are none.
	InProcess *InProcess
}

// HealthReporter publishes the daemon's health on the bus and to systemd.
type HealthReporter interface {
	// Set states the daemon's health; a repeated state with the same message costs nothing.
	Set(state topic.HealthState, message string)
}

// EventRecorder publishes Kubernetes Events on the bus. It never blocks.
type EventRecorder interface {
	Record(e topic.Event)
}
