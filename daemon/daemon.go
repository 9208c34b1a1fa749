// Package daemon is how any kubelot daemon starts, loads its configuration, logs, reports
// health and metrics, notifies systemd and stops. A daemon's main calls Main and does nothing else.
//
// # Reads
//
// The command line, the kubelet's configuration file and drop-ins (package config), the daemon's bus key
// <run-dir>/keys/<daemon>.nk, systemd's environment (NOTIFY_SOCKET, WATCHDOG_USEC, and what package fdstore reads).
//
// # Writes
//
// The topics health.<daemon> and event.<daemon>, log lines on standard error, metrics on the unix
// socket <run-dir>/metrics/<daemon>.sock.
//
// # Owns
//
// The process: its signals, its exit code, its memory settings, its bus connection. A process may be several daemons (MainGroup,
// docs/adr/0016); no daemon knows whether it is alone.
//
// # Guarantees
//
//   - SIGTERM and SIGINT end the context that Run got, with the signal as its cause; a second one ends the process.
//   - The bus being away neither keeps a daemon from starting nor stops it.
//   - What was given to the bus before Run returned is sent before the process ends, unless the bus is away.
//   - A daemon that has named its loop (Env.Pulse) falls silent, on the bus and to systemd's watchdog, while that hangs.
//   - The exit code is 0 only after a requested stop; the last log line says why the daemon ended.
//   - A daemon of a group that fails is started again alone. A panic of its is caught only if nothing of it goes on; else the
//     group ends.
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
	// WithoutBus is for kubelot-bus itself: Env.Bus is nil, and systemd is told READY=1 not before
	// Run first sets its health, since the others start after it.
	WithoutBus bool
	// LibraryMetrics is for a daemon that serves the registry in which Kubernetes' libraries count (component-base's
	// legacyregistry). The others drop what it holds.
	LibraryMetrics bool
	// Processors is how many processors the daemon uses at most where it has a process to itself; 0 means 2.
	Processors int
}

// Env is what the chassis gives to a daemon's Run.
type Env struct {
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
	// Pulse is where a daemon names its loop, so that its health's beats tell that it works; nil in tests.
	Pulse *Pulse
	// Events publishes Kubernetes Events under the daemon's name.
	Events EventRecorder
	// Flags are the command line's flags with their values, also those that weren't given. None of them is secret.
	Flags map[string]string
	// Connections keeps connections open when this process is killed; nil where nobody supervises it.
	Connections *fdstore.Store
	// InProcess is where kubelot-bus leaves how the daemons of its own process connect to it; nil where there are none.
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
