package daemon

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"

	"kubelot.dev/daemon/config"
)

// ReloadPath is the path of a daemon's socket that has it read its configuration again: POST, answered with Reloaded.
// GET is answered with what a POST would find, and changes nothing.
const ReloadPath = "/config/reload"

// Reloaded is what came of it that a daemon read its configuration again. Fields are named as by config.Changed.
type Reloaded struct {
	Daemon string `json:"daemon"`
	// Error says why nothing of the configuration was taken.
	Error string `json:"error,omitempty"`
	// Changed are the fields that differ from what the daemon ran with.
	Changed []string `json:"changed,omitempty"`
	// Taken are those that the daemon has taken, and Restart those that it takes at its next start only. The others don't
	// concern it.
	Taken   []string `json:"taken,omitempty"`
	Restart []string `json:"restart,omitempty"`
}

// Reloads is where a daemon says which fields it can take while it runs. The methods of a nil one do nothing.
type Reloads struct {
	mu     sync.Mutex
	fields []string
	take   func(next *config.Config) error
}

// Take names the fields that the daemon can take while it runs. take is called when some of them have changed, with a
// configuration that is the one before but for those. It may be called from any goroutine, one call at a time. If it
// returns an error the daemon must run on as before.
func (r *Reloads) Take(take func(next *config.Config) error, fields ...string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.take, r.fields = take, slices.Clone(fields)
}

// offer hands the changed fields that the daemon can take to it, and returns them.
func (r *Reloads) offer(running, next *config.Config, changed []string) (taken []string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, field := range changed {
		if slices.Contains(r.fields, field) {
			taken = append(taken, field)
		}
	}
	if len(taken) == 0 {
		return nil, nil
	}
	return taken, r.take(running.With(next, taken))
}

// reloader reads the configuration of one daemon again, in one of its lives.
type reloader struct {
	daemon  string
	load    func() (*config.Config, error)
	reloads *Reloads
	logs    *logOptions
	// refused is told why nothing was taken; nil once that is over.
	refused func(error)
	log     *slog.Logger

	mu sync.Mutex
	// running is what the daemon runs with.
	running *config.Config
}

// reload takes what the daemon can take. After an error everything is as before.
func (r *reloader) reload() Reloaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Reloaded{Daemon: r.daemon}
	next, err := r.load()
	if err == nil {
		out.Changed = config.Changed(r.running, next)
		out.Taken, err = r.reloads.offer(r.running, next, out.Changed)
	}
	r.refused(err)
	if err != nil {
		r.log.Error("the changed configuration is not taken, the daemon runs on as before", "error", err)
		return Reloaded{Daemon: r.daemon, Error: err.Error()}
	}
	r.sort(&out, next)
	if len(out.Taken)+len(out.Restart) > 0 {
		r.log.Info("configuration read again", "taken", strings.Join(out.Taken, ", "),
			"needs_restart_of_this_daemon", strings.Join(out.Restart, ", "))
	}
	if r.daemon == warner && !slices.Equal(r.running.Warnings, next.Warnings) {
		for _, warning := range next.Warnings {
			r.log.Warn(warning)
		}
	}
	// What the daemon takes at its next start only stays a difference, so that it is told again.
	r.running = r.running.With(next, without(out.Changed, out.Restart))
	r.running.Warnings = next.Warnings
	return out
}

// look is what a reload would find, of what concerns the daemon. Whether the daemon can take it isn't known before.
func (r *reloader) look() Reloaded {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.load()
	if err != nil {
		return Reloaded{Daemon: r.daemon, Error: err.Error()}
	}
	changed := slices.DeleteFunc(config.Changed(r.running, next), func(field string) bool {
		return !config.Concerns(field, r.daemon)
	})
	return Reloaded{Daemon: r.daemon, Changed: changed}
}

// sort completes what was taken by the chassis's own part, and says which of the other fields need a restart.
func (r *reloader) sort(out *Reloaded, next *config.Config) {
	for _, field := range out.Changed {
		switch {
		case slices.Contains(out.Taken, field):
		case field == config.Verbosity:
			r.logs.setVerbosity(uint32(next.Kubelet.Logging.Verbosity))
			out.Taken = append(out.Taken, field)
		case config.Concerns(field, r.daemon):
			out.Restart = append(out.Restart, field)
		}
	}
	slices.Sort(out.Taken)
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// serve answers at ReloadPath.
func (r *reloader) serve(w http.ResponseWriter, request *http.Request) {
	answer := r.look
	if request.Method == http.MethodPost {
		answer = r.reload
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer()); err != nil {
		r.log.Debug("whoever asked about the configuration is gone", "error", err)
	}
}
